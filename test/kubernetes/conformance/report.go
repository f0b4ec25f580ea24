package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// spec is one of upstream's tests as ginkgo reports it.
type spec struct {
	// Name is the full name, as in upstream's list of Conformance tests.
	Name string
	// State is ginkgo's state: passed, skipped, failed, panicked, timedout, pending and others.
	State string
	// Message is the reason for a failure or a skip.
	Message string
	// Log is the test's output.
	Log  string
	Took time.Duration
}

const passed = "passed"

// readReport reads the tests of a ginkgo JSON report that ginkgo selected.
func readReport(path string) ([]spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			RunTime                    time.Duration
			Failure                    struct{ Message string }
			CapturedGinkgoWriterOutput string
		}
	}
	if err := json.Unmarshal(content, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var specs []spec
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			const test = "It" // other nodes prepare and clean up
			deselected := r.State == "skipped" && r.Failure.Message == ""
			if deselected || r.LeafNodeType != test && r.State == passed {
				continue
			}
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if r.LeafNodeType != test {
				name = r.LeafNodeType + " " + name
			}
			specs = append(specs, spec{
				Name: strings.TrimSpace(name), State: r.State, Message: r.Failure.Message,
				Log: r.CapturedGinkgoWriterOutput, Took: r.RunTime,
			})
		}
	}
	return specs, nil
}
