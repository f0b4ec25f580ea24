package main

import (
	"strings"
	"testing"
)

func TestOutputFormats(t *testing.T) {
	for format, want := range map[string]string{
		"json":                                "\"name\": \"web\"",
		"yaml":                                "- directions:\n  - egress\n  egressRules: 2\n",
		"jsonpath={[0].namespace}/{[0].name}": "shop/web\n",
		"jsonpath=[0].egressRules":            "2\n",
		"jsonpath={[0].missing}":              "\n",
	} {
		code, stdout, stderr := beeline(t, "policies", "--socket", (&explainer{}).socket(t), "-o", format)
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: exit code %d, printed\n%s%s\nwant %q", format, code, stdout, stderr, want)
		}
	}
	for _, format := range []string{"toml", "jsonpath={", ""} {
		if code, _, stderr := beeline(t, "policies", "-o", format); code != 1 || !strings.Contains(stderr, "--output: ") {
			t.Errorf("%q: exit code %d, %s", format, code, stderr)
		}
	}
}

// A list has the names of its objects, and columns that only wide prints.
func TestWideAndName(t *testing.T) {
	socket := (&explainer{}).socket(t)
	for format, want := range map[string]string{
		"name": "networkpolicy.networking.k8s.io/web\n",
		"text": "POLICY    DIRECTIONS  RULES  LOCAL PODS           STATE\n" +
			"shop/web  egress      2      a, b, c, and 1 more  closed: a field is invalid\n",
		"wide": "POLICY    DIRECTIONS  RULES  LOCAL PODS           STATE                       SINCE\n" +
			"shop/web  egress      2      a, b, c, and 1 more  closed: a field is invalid  -\n",
	} {
		if code, stdout, stderr := beeline(t, "policies", "--socket", socket, "-o", format); code != 0 || stdout != want {
			t.Errorf("%s: exit code %d, printed\n%s%s\nwant\n%s", format, code, stdout, stderr, want)
		}
	}
	if code, _, stderr := beeline(t, "status", "-o", "wide"); code != 1 || !strings.Contains(stderr, "--output: ") {
		t.Errorf("status: exit code %d, %s", code, stderr)
	}
}

// A Service has one name for all of its ports; an endpoint without a pod has its container's.
func TestNames(t *testing.T) {
	socket := (&explainer{}).socket(t)
	for command, want := range map[string]string{
		"services":  "service/web\npod/db\n",
		"endpoints": "pod/a\ncontainer/c0\n",
	} {
		if code, stdout, stderr := beeline(t, command, "--socket", socket, "-o", "name"); code != 0 || stdout != want {
			t.Errorf("%s: exit code %d, printed\n%s%s\nwant\n%s", command, code, stdout, stderr, want)
		}
	}
}
