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
		"name": "networkpolicy.networking.k8s.io/web\nnetworkpolicy.networking.k8s.io/db\n",
		"text": "POLICY    DIRECTIONS  RULES  LOCAL PODS           STATE\n" +
			"shop/web  egress      2      a, b, c, and 1 more  closed: a field is invalid\n" +
			"shop/db   ingress     0      -                    active\n",
		"wide": "POLICY    DIRECTIONS  RULES  LOCAL PODS           STATE                       SINCE\n" +
			"shop/web  egress      2      a, b, c, and 1 more  closed: a field is invalid  -\n" +
			"shop/db   ingress     0      -                    active                      2026-03-01T09:00:00Z\n",
	} {
		if code, stdout, stderr := beeline(t, "policies", "--socket", socket, "-o", format); code != 0 || stdout != want {
			t.Errorf("%s: exit code %d, printed\n%s%s\nwant\n%s", format, code, stdout, stderr, want)
		}
	}
	if code, stdout, _ := beeline(t, "policies", "-n", "none", "--socket", socket, "-o", "name"); code != 0 || stdout != "" {
		t.Errorf("names of an empty list: exit code %d, printed %q", code, stdout)
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
		"endpoints": "pod/a\ncontainer/c0123456789abcdef\n",
	} {
		if code, stdout, stderr := beeline(t, command, "--socket", socket, "-o", "name"); code != 0 || stdout != want {
			t.Errorf("%s: exit code %d, printed\n%s%s\nwant\n%s", command, code, stdout, stderr, want)
		}
	}
}

func TestWideColumns(t *testing.T) {
	socket := (&explainer{}).socket(t)
	for _, c := range []struct{ command, format, want string }{
		{"endpoints", "text", "POD ADDRESSES HOST DEVICE PATH STATE"},
		{"endpoints", "wide", "POD CONTAINER INTERFACE ADDRESSES IPPOOL MTU KIND HOST DEVICE PATH STATE"},
		{"services", "text", "SERVICE PORT TYPE FRONTEND INTERNAL EXTERNAL CONNECTIONS REJECTED"},
		{"services", "wide", "SERVICE PORT TYPE FRONTEND INTERNAL EXTERNAL OPTIONS CONNECTIONS REJECTED"},
	} {
		_, stdout, stderr := beeline(t, c.command, "--socket", socket, "-o", c.format)
		if heading, _, _ := strings.Cut(stdout, "\n"); strings.Join(strings.Fields(heading), " ") != c.want {
			t.Errorf("%s -o %s: %q, want %q: %s", c.command, c.format, heading, c.want, stderr)
		}
	}
}
