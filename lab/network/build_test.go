package network

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// otherBuild makes a directory with what a build has.
func otherBuild(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"beeline-agent", "beeline-cni"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A build is a network of its own beside each of this project's that is chosen, and beside no other.
func TestBuilds(t *testing.T) {
	dir := otherBuild(t)
	names, builds, err := ParseBuilds([]string{"node", "beeline-kernel", "old=" + dir, "beeline"})
	if err != nil {
		t.Fatal(err)
	}
	selected, err := Select(All(), names)
	if err != nil {
		t.Fatal(err)
	}
	all := WithBuilds(selected, builds)
	if got, want := Names(all), []string{"node", "beeline", "old", "beeline-kernel", "old-kernel"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got, err := all[2].(Beeline).Build.programs()
	if err != nil || got != dir {
		t.Errorf("got programs in %s (%v), want those in %s", got, err, dir)
	}
	if got := all[4].Description(); !strings.Contains(got, "--routing=kernel") || !strings.Contains(got, dir) {
		t.Errorf("description %q does not say which build of which network it is", got)
	}
	for _, suite := range [][]string{Names(WithBuilds(WithPolicies(), builds)), Names(WithBuilds(WithServices(), builds)), Names(WithBuilds(WithNodePorts(), builds))} {
		seen := map[string]bool{}
		for _, name := range suite {
			if seen[name] {
				t.Errorf("%q is there twice in %v", name, suite)
			}
			seen[name] = true
		}
	}
	if got := Names(WithBuilds(WithNodePorts(), builds)); !slices.Equal(got[1:5], []string{"beeline-xdp", "old-xdp", "beeline-tc", "old-tc"}) {
		t.Errorf("got %v", got)
	}
}

// The error for a wrong element names it and says why.
func TestParseBuildsErrors(t *testing.T) {
	empty := t.TempDir()
	for element, want := range map[string]string{
		"old=":                      "want NAME=PATH",
		"=" + empty:                 "want NAME=PATH",
		"node=" + empty:             "want NAME=PATH",
		"beeline-x=" + empty:        "want NAME=PATH",
		"old=" + empty:              filepath.Join(empty, "beeline-agent") + ":",
		"old=" + empty + "/nowhere": "nowhere",
	} {
		if _, _, err := ParseBuilds([]string{element}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), element) {
			t.Errorf("%s: got %v, want an error that names it and says %q", element, err, want)
		}
	}
}
