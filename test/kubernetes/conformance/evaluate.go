package main

import (
	"fmt"
	"slices"
)

// verdict is the result of one test.
type verdict struct {
	spec
	// result is "pass", "fail" or "skip".
	result string
	// why is the reason for a failure or a skip.
	why string
}

// evaluate compares the tests that ran with the list. Each listed test must pass, except those that need SCTP where the
// kernel lacks it; failures of other tests count too.
func evaluate(listed, ran []spec, lacking []string) (verdicts []verdict) {
	fail := func(s spec, format string, args ...any) verdict {
		return verdict{s, "fail", fmt.Sprintf(format, args...)}
	}
	byName := map[string]spec{}
	for _, s := range ran {
		byName[s.Name] = s
	}
	known := map[string]bool{}
	for _, l := range listed {
		known[l.Name] = true
		s, there := byName[l.Name]
		switch {
		case there && s.State == passed:
			verdicts = append(verdicts, verdict{s, "pass", ""})
		case slices.Contains(lacking, l.Name):
			verdicts = append(verdicts, verdict{l, "skip", "not on this kernel: SCTP"})
		case !there:
			verdicts = append(verdicts, fail(l, "did not run"))
		default:
			verdicts = append(verdicts, fail(s, "%s: %s", s.State, s.Message))
		}
	}
	for _, s := range ran {
		if !known[s.Name] && s.State != passed {
			verdicts = append(verdicts, fail(s, "%s: %s", s.State, s.Message))
		}
	}
	if len(listed) == 0 {
		verdicts = append(verdicts, fail(spec{Name: "all"}, "upstream lists no test: the selection is wrong"))
	}
	return verdicts
}
