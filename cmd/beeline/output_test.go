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
