package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// directory writes programs into a directory; a name that ends in .json is no program.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, ".json") {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestParse(t *testing.T) {
	const up = "#!/bin/sh\n"
	rest, networks, err := Parse([]string{"node", "old=../before/bin", "mine=exec:" + directory(t, map[string]string{
		"up": up, "network.json": `{"description": "mine", "needs": ["no-such-program"]}`,
	})})
	if err != nil || strings.Join(rest, " ") != "node old=../before/bin" || len(networks) != 1 {
		t.Fatalf("%v, %v: %v", rest, networks, err)
	}
	if n := networks[0]; n.Name() != "mine" || n.Description() != "mine" || n.Unsupported() != "not installed: no-such-program" {
		t.Errorf("%s: %s, %s", n.Name(), n.Description(), n.Unsupported())
	}
	for element, want := range map[string]string{
		"=exec:x":                        "want NAME=exec:DIR",
		"node2=exec:x":                   "want NAME=exec:DIR",
		"beeline-x=exec:x":               "want NAME=exec:DIR",
		"a/b=exec:x":                     "want NAME=exec:DIR",
		"mine=exec:":                     "DIR is missing",
		"mine=exec:" + directory(t, nil): "is no program",
		"mine=exec:" + directory(t, map[string]string{"up": up, "add-pod": up}):       "has one of",
		"mine=exec:" + directory(t, map[string]string{"up": up, "network.json": "{"}): "network.json",
	} {
		if _, _, err := Parse([]string{element}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "exec:") {
			t.Errorf("%q: %v, want %q", element, err, want)
		}
	}
}

// labFor makes a lab of two nodes with an API server, which ends with the test.
func labFor(t *testing.T, name string) *testbed.Lab {
	t.Helper()
	testenv.Root(t)
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: "t-script-" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	server, _, err := network.ServeObjects(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return lab
}

// Pods of both kinds of directories reach each other, are deleted, and what the programs leave running ends with the lab.
func TestNetworks(t *testing.T) {
	for _, name := range []string{"conflist", "programs"} {
		t.Run(name, func(t *testing.T) {
			n, err := open(name, filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if why := n.Unsupported(); why != "" {
				testenv.Missing(t, why)
			}
			lab := labFor(t, name)
			if err := n.Up(t.Context(), lab); err != nil {
				t.Fatal(err)
			}
			var pods []*testbed.Pod
			for i := range 4 {
				pod, err := network.AddPod(t.Context(), n, lab, lab.Node(i/2), []string{"a", "b", "c", "d"}[i])
				if err != nil {
					t.Fatal(err)
				}
				pods = append(pods, pod)
			}
			for _, to := range pods[1:] {
				if err := network.Verify(t.Context(), n, pods[0], to); err != nil {
					t.Error(err)
				}
			}
			if err := network.DelPod(t.Context(), n, lab, pods[1]); err != nil {
				t.Error(err)
			}
			pid := n.AgentPID(lab.Node(0))
			if (pid != 0) != (name == "conflist") || n.Facts(t.Context(), lab)["made by"] != n.dir {
				t.Errorf("agent %d, facts %v", pid, n.Facts(t.Context(), lab))
			}
			if err := n.Down(t.Context(), lab); err != nil {
				t.Error(err)
			}
			if left, _ := filepath.Glob(filepath.Join(lab.Dir(), "down-*")); (len(left) > 0) != (name == "conflist") {
				t.Errorf("down has left %v", left)
			}
			if err := lab.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); pid != 0 && err == nil && !strings.Contains(string(stat), ") Z ") {
				t.Errorf("process %d goes on: %s", pid, stat)
			}
		})
	}
}

// What a program says wrong is an error with its path and words, and down runs.
func TestUpFails(t *testing.T) {
	lab := labFor(t, "fails")
	marker := filepath.Join(t.TempDir(), "down")
	for name, c := range map[string]struct{ up, more, want string }{
		"exit code":   {"#!/bin/sh\necho what went wrong >&2; exit 3\n", "", "exit status 3: what went wrong"},
		"no build":    {"", "", "no compiler"},
		"no JSON":     {"#!/bin/sh\necho yes\n", "", "read what"},
		"no conflist": {"#!/bin/sh\n", "", "prints no conflist"},
		"not ready":   {"#!/bin/sh\necho '{\"conflist\": {}}'\n", "#!/bin/sh\nexit 7\n", "exit status 7"},
	} {
		files := map[string]string{"up": c.up, "down": "#!/bin/sh\ntouch " + marker + "\n"}
		if c.up == "" {
			files["up"], files["build"] = "#!/bin/sh\n", "#!/bin/sh\necho no compiler; exit 1\n"
		}
		if c.more != "" {
			files["ready"] = c.more
		}
		n, err := open("mine", directory(t, files))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Up(t.Context(), lab); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), n.dir) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if os.Remove(marker) != nil {
			t.Errorf("%s: down was not run", name)
		}
	}
}
