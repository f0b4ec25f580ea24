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
var Studies = sync.OnceValue(func() []Study {
	studies, err := parse(studiesCSV, figuresCSV)
	if err != nil {
		panic(err)
	}
	return studies
})

func parse(studiesText, figuresText string) ([]Study, error) {
	rows, err := table(studiesText, "id,title,author,year,machine,remark")
	if err != nil {
		return nil, fmt.Errorf("studies: %w", err)
	}
	var studies []Study
	index := map[string]int{}
	for _, r := range rows {
		year, err := strconv.Atoi(r[3])
		if err != nil {
			return nil, fmt.Errorf("study %s: year: %w", r[0], err)
		}
		index[r[0]] = len(studies)
		studies = append(studies, Study{ID: r[0], Title: r[1], Author: r[2], Year: year, Machine: r[4], Remark: r[5]})
	}
	rows, err = table(figuresText, "study,test,system,value,unit,better,grade,baseline,network,against,workload")
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	for _, r := range rows {
		i, ok := index[r[0]]
		if !ok {
			return nil, fmt.Errorf("figure of unknown study %q", r[0])
		}
		value, err := strconv.ParseFloat(r[3], 64)
		if err != nil {
			return nil, fmt.Errorf("study %s, %s, %s: value: %w", r[0], r[1], r[2], err)
		}
		f := Figure{Test: r[1], System: r[2], Value: value, Unit: r[4], Better: r[5], Grade: Grade(r[6]), Baseline: r[7], Network: r[8], Against: r[9]}
		if r[10] != "" {
			f.Workloads = strings.Split(r[10], "|")
		}
		studies[i].Figures = append(studies[i].Figures, f)
	}
	for _, s := range studies {
		if err := s.divide(); err != nil {
			return nil, fmt.Errorf("study %s: %w", s.ID, err)
		}
	}
	return studies, nil
}

// divide computes the ratios.
func (s Study) divide() error {
	for i := range s.Figures {
		f := &s.Figures[i]
		if f.Baseline == "" {
			continue
		}
		base, ok := s.value(f.Test, f.Baseline)
		if !ok {
			return fmt.Errorf("%s: no usable baseline %q", f.Test, f.Baseline)
		}
		f.Ratio = f.Value / base
	}
	return nil
}

func (s Study) value(test, system string) (float64, bool) {
	for _, f := range s.Figures {
		if f.Test == test && f.System == system && f.Grade != Unusable && f.Value > 0 {
			return f.Value, true
		}
	}
	return 0, false
}

// table reads CSV text with the expected header and returns the rows under it.
func table(text, header string) ([][]string, error) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || strings.Join(rows[0], ",") != header {
		return nil, fmt.Errorf("header is not %s", header)
	}
	return rows[1:], nil
}
