package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	listed := []spec{{Name: "a"}, {Name: "b"}}
	for _, test := range []struct {
		name    string
		listed  []spec
		ran     []spec
		lacking []string
		want    string
	}{
		{"all pass", listed, []spec{{Name: "a", State: passed}, {Name: "b", State: passed}}, nil, "a pass, b pass"},
		{"one fails", listed, []spec{{Name: "a", State: "failed"}, {Name: "b", State: passed}}, nil, "a fail, b pass"},
		{"one skips itself", listed, []spec{{Name: "a", State: "skipped", Message: "too few nodes"}, {Name: "b", State: passed}}, nil, "a fail, b pass"},
		{"one does not run", listed, []spec{{Name: "b", State: passed}}, nil, "a fail, b pass"},
		{"nothing runs", listed, nil, nil, "a fail, b fail"},
		{"nothing is listed", nil, nil, nil, "all fail"},
		{"the kernel lacks its feature", listed[:1], nil, []string{"a"}, "a skip"},
		{"it fails without its feature", listed, []spec{{Name: "a", State: "failed"}, {Name: "b", State: passed}}, []string{"a"}, "a skip, b pass"},
		{"the preparation fails", listed[1:], []spec{{Name: "b", State: passed}, {Name: "BeforeSuite", State: "failed"}}, nil, "b pass, BeforeSuite fail"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, v := range evaluate(test.listed, test.ran, test.lacking) {
				got = append(got, v.Name+" "+v.result)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			var out bytes.Buffer
			if failed := emit(&out, evaluate(test.listed, test.ran, test.lacking)); failed != strings.Contains(test.want, "fail") {
				t.Errorf("emit returns %t:\n%s", failed, out.String())
			}
		})
	}
}

func TestReadReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	const report = `[{"SpecReports": [
		{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "works [Conformance]", "State": "passed"},
		{"ContainerHierarchyTexts": ["other"], "LeafNodeType": "It", "LeafNodeText": "was not selected", "State": "skipped"},
		{"ContainerHierarchyTexts": ["other"], "LeafNodeType": "It", "LeafNodeText": "skips", "State": "skipped", "Failure": {"Message": "no reason"}},
		{"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "no cluster"}}
	]}]`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range specs {
		got = append(got, s.Name+": "+s.State)
	}
	want := "[sig-network] DNS works [Conformance]: passed; other skips: skipped; SynchronizedAfterSuite: failed"
	if strings.Join(got, "; ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSelectionOfTheKernel(t *testing.T) {
	listed := []spec{{Name: "[sig-network] Netpol a"}, {Name: "[sig-network] Netpol [Feature:SCTPConnectivity] b"}}
	s := selection{focus: "Netpol", skip: "c", sctp: true}
	if got := s.here(false).flags("-"); strings.Join(got, " ") != `-focus=Netpol -skip=c|\[Feature:SCTPConnectivity\]` {
		t.Errorf("flags %q", got)
	}
	got, err := s.lacking(listed, false)
	if err != nil || !slices.Equal(got, []string{listed[1].Name}) {
		t.Errorf("lacking %v, %v", got, err)
	}
	if _, err := s.lacking(listed[:1], false); err == nil {
		t.Error("no error for a need that no test has")
	}
	s.skip = ""
	got, err = s.lacking(listed, true)
	if flags := s.here(true).flags("-"); err != nil || len(got) > 0 || strings.Join(flags, " ") != "-focus=Netpol" {
		t.Errorf("with the feature present: lacking %v, flags %q, %v", got, flags, err)
	}
}
