// Package problem lists the problems that `beeline status`, metrics and the log report.
package problem

import (
	"fmt"
	"log/slog"
	"strings"
)

// Max bounds each list of problems: more of them follow when these are solved.
const Max = 100

// Set makes a set of problems.
func Set(all []string) map[string]bool {
	in := make(map[string]bool, len(all))
	for _, p := range all {
		in[p] = true
	}
	return in
}

// Texts are the texts of problems.
func Texts[T fmt.Stringer](all []T) (texts []string) {
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return texts
}

// List gives each problem once, in its first place, and at most Max of each list.
func List(lists ...[]string) (all []string) {
	in := map[string]bool{}
	for _, list := range lists {
		more := 0
		for i, p := range list {
			switch {
			case in[p]:
			case i >= Max:
				more++
			default:
				in[p] = true
				all = append(all, p)
			}
		}
		if more > 0 {
			all = append(all, fmt.Sprintf("and %d more problems of this kind", more))
		}
	}
	return all
}

// LogNew logs the problems that were not there before.
func LogNew(log *slog.Logger, before, now []string) {
	if len(now) == 0 {
		return
	}
	known, logged := Set(before), 0
	for _, p := range now {
		if known[p] {
			continue
		}
		if logged++; logged > Max {
			log.Warn("more problems: see beeline status")
			return
		}
		log.Warn("problem", "problem", p)
	}
}

// OneLine is an error of several steps in one line, as users read it in conditions, Events and CNI errors.
type OneLine struct{ Err error }

func (e OneLine) Error() string { return strings.ReplaceAll(e.Err.Error(), "\n", "; ") }

// Unwrap gives the error.
func (e OneLine) Unwrap() error { return e.Err }
