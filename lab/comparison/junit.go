package comparison

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The elements of a JUnit XML report that continuous integration reads: a suite for each condition, a case for each figure.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
	}
)

// WriteJUnit writes checks as JUnit XML. What is undecidable fails, with its own type.
func WriteJUnit(w io.Writer, all []Check) error {
	report := junitReport{Tests: len(all), Failures: len(Failures(all))}
	for _, j := range all {
		if n := len(report.Suites); n == 0 || report.Suites[n-1].Name != j.Condition {
			report.Suites = append(report.Suites, junitSuite{Name: j.Condition})
		}
		s := &report.Suites[len(report.Suites)-1]
		s.Tests++
		c := junitCase{Class: "bench." + j.Change.Network, Name: j.Change.String(), Output: j.Value.String()}
		if j.Outcome != Passed {
			s.Failures++
			c.Failure = &junitFailure{Message: j.Value.String() + ": " + j.reason(), Type: string(j.Outcome)}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(report); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
