// Package published has the figures of published studies about the cost of container networking. They come from other
// machines: only ratios within a study compare, never values.
package published

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

//go:embed studies.csv
var studiesCSV string

//go:embed figures.csv
var figuresCSV string

// Study is one publication.
type Study struct {
	// ID identifies the study in figures.csv.
	ID, Title, Author string
	Year              int
	// Machine describes the hardware and kernel.
	Machine string
	// Remark is what a reader must know about the figures, including errors in them.
	Remark  string
	Figures []Figure
}

// Name is the author and the year.
func (s Study) Name() string { return fmt.Sprintf("%s %d", s.Author, s.Year) }

// Grade is how a figure was obtained.
type Grade string

// The grades: computed from the authors' result files, read off a chart, stated in text. An unusable figure contradicts
// the rest of its study: reports show it and never compare it.
const (
	Raw      Grade = "raw"
	Chart    Grade = "chart"
	Stated   Grade = "text"
	Unusable Grade = "unusable"
)

// Figure is one published number.
type Figure struct {
	Test, System string
	// Value is in Unit. Better is "higher" or "lower".
	Value  float64
	Unit   string
	Better string
	Grade  Grade
	// Baseline is the system of the same study and test that Ratio divides by, or empty.
	Baseline string
	// Ratio is Value ÷ the baseline's value, or 0 without a baseline.
	Ratio float64
	// Network and Against are the lab's counterparts of System and Baseline, Workloads those of Test, the best first.
	// They are empty if the lab measures nothing comparable.
	Network, Against string
	Workloads        []string
}

// Comparable reports whether the lab measures a counterpart of the figure's ratio.
func (f Figure) Comparable() bool {
	return f.Network != "" && f.Ratio > 0 && f.Grade != Unusable
}

// Studies returns all studies with their figures, in the order of the files. The result is shared: callers must not change
// it. The files are embedded and tested, so a parse error panics.
var Studies = sync.OnceValue(func() (studies []Study) {
	for _, r := range table(studiesCSV) {
		s := Study{ID: r[0], Title: r[1], Author: r[2], Year: must(strconv.Atoi(r[3])), Machine: r[4], Remark: r[5]}
		for _, r := range table(figuresCSV) {
			if r[0] != s.ID {
				continue
			}
			f := Figure{
				Test: r[1], System: r[2], Value: must(strconv.ParseFloat(r[3], 64)), Unit: r[4], Better: r[5], Grade: Grade(r[6]), Baseline: r[7],
				Network: r[8], Against: r[9], Workloads: strings.FieldsFunc(r[10], func(c rune) bool { return c == '|' }),
			}
			s.Figures = append(s.Figures, f)
		}
		for i := range s.Figures {
			f := &s.Figures[i]
			if base := s.value(f.Test, f.Baseline); base > 0 {
				f.Ratio = f.Value / base
			}
		}
		studies = append(studies, s)
	}
	return studies
})

// value is the usable figure of a system in a test, 0 if there is none.
func (s Study) value(test, system string) float64 {
	for _, f := range s.Figures {
		if f.Test == test && f.System == system && f.Grade != Unusable {
			return f.Value
		}
	}
	return 0
}

// table reads the rows of CSV text below its header.
func table(text string) [][]string { return must(csv.NewReader(strings.NewReader(text)).ReadAll())[1:] }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
