package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// event is one line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"`
	Output  string  `json:",omitempty"`
}

const packageName = "github.com/beeline-cni/beeline/test/kubernetes/conformance"

// emit prints the verdicts as events of a package, and returns whether any failed.
func emit(w io.Writer, verdicts []verdict) (failed bool) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	var all time.Duration
	for _, v := range verdicts {
		all += v.Took
		failed = failed || v.result == "fail"
		if said := output(v); said != "" {
			_ = encoder.Encode(event{Action: "output", Package: packageName, Test: v.Name, Output: said})
		}
		_ = encoder.Encode(event{Action: v.result, Package: packageName, Test: v.Name, Elapsed: v.Took.Seconds()})
	}
	result := "pass"
	if failed {
		result = "fail"
	}
	_ = encoder.Encode(event{Action: result, Package: packageName, Elapsed: all.Seconds() / processes})
	return failed
}

// output explains a verdict, for a failure with the end of the test's log.
func output(v verdict) string {
	const enough = 6 << 10
	switch v.result {
	case "fail":
		return fmt.Sprintf("--- FAIL: %s (%.1fs)\n%s\n%s\n", v.Name, v.Took.Seconds(), v.Log[max(0, len(v.Log)-enough):], v.why)
	case "skip":
		return v.why + "\n"
	}
	return ""
}
