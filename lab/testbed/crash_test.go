package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// crashingLab is the environment variable that makes the test binary the command that will be killed: it
// makes the lab of that name, then a pod, and waits.
const crashingLab = "BEELINE_TEST_CRASHING_LAB"

func TestMain(m *testing.M) {
	if name := os.Getenv(crashingLab); name != "" {
		if err := makeAndWait(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func makeAndWait(name string) error {
	ctx := context.Background()
	lab, err := Up(ctx, Options{Name: name, Nodes: MaxNodes, IPv6: true})
	if err != nil {
		return err
	}
	if _, err := lab.NewPodNetns(ctx, lab.Node(0), "web"); err != nil {
		return err
	}
	for _, n := range lab.Nodes() {
		if err := n.Start(exec.Command("sleep", "1000")); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return nil
}

func TestDownAfterACrash(t *testing.T) {
	testenv.Root(t)
	root, err := cgroupRoot()
	if err != nil {
		t.Fatal(err)
	}
	const name = "t-crash"
	last := planNodes(Options{Name: name, Nodes: MaxNodes}, root)[MaxNodes-1]
	// Each case kills the command when this trace of it appears, which is long before it is done.
	for point, trace := range map[string]string{
		"nothing but the directory": labDir(name),
		"recorded":                  recordPath(name),
		"first node half made":      labCgroup(root, name),
		"first node's BPF mount":    filepath.Join(labDir(name), "n1", "bpf"),
		"some nodes":                nodeNetns(name, "n15"),
		"all nodes, no wire":        last.Path,
		"wire half made":            nodeNetns(name, wireName),
		"with a pod":                podNetns(name, "n1", "web"),
		"with processes":            filepath.Join(labDir(name), "n1", "pods", "web.json"),
	} {
		t.Run(point, func(t *testing.T) {
			downAfter(t, name)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), crashingLab+"="+name)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, trace)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed

			if len(traces(t, name)) == 0 {
				t.Fatal("the crash left nothing: the test proves nothing")
			}
			if err := Down(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			wantNoTraces(t, name)
			lab, err := Up(t.Context(), Options{Name: name})
			if err != nil {
				t.Fatalf("a lab of that name after the crash: %v", err)
			}
			if err := lab.Down(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func waitFor(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not appear", path)
		}
	}
}

func TestRemainsAreListedAndNotUsed(t *testing.T) {
	testenv.Root(t)
	const name = "t-remains"
	downAfter(t, name)
	if err := os.MkdirAll(labDir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{`{"options": {"name": "t-remains"}}`, `{"options`} {
		if err := os.WriteFile(recordPath(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		listed, err := List()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, l := range listed {
			found = found || l.Name == name && l.Lab == nil
		}
		if !found {
			t.Errorf("with lab.json %s, List gives %v", content, listed)
		}
		if lab, err := Up(t.Context(), Options{Name: name}); err == nil {
			t.Errorf("with lab.json %s, Up made %v over the remains", content, lab)
		}
		if _, err := Open(name); err == nil {
			t.Errorf("with lab.json %s, Open gives a lab", content)
		}
	}
	if err := Down(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	wantNoTraces(t, name)
}

// A process that somebody runs in a node's namespace, but not through the lab, is not the lab's to end.
func TestDownSparesForeignProcesses(t *testing.T) {
	lab := up(t, Options{Name: "t-foreign"})
	foreign := sleeper(t, Netns{Path: lab.Node(0).Path})
	own := sleeper(t, lab.Node(0).Netns)
	if err := lab.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoTraces(t, "t-foreign")
	_ = own.Wait() // killed
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/exe", foreign.Process.Pid)); err != nil {
		t.Errorf("the foreign process is gone: %v", err)
	}
}

// Down run inside the lab would end itself half way.
func TestDownFromInside(t *testing.T) {
	lab := up(t, Options{Name: "t-inside"})
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperDown$")
	cmd.Env = append(os.Environ(), "BEELINE_TEST_DOWN=t-inside")
	if err := lab.Node(0).Run(cmd); err != nil {
		t.Errorf("the command ended with %v: want it to refuse in order", err)
	}
	if _, err := Open("t-inside"); err != nil {
		t.Errorf("the lab is harmed: %v", err)
	}
}

// TestHelperDown is the process of TestDownFromInside.
func TestHelperDown(t *testing.T) {
	name := os.Getenv("BEELINE_TEST_DOWN")
	if name == "" {
		return
	}
	if err := Down(t.Context(), name); err == nil {
		t.Error("Down from inside the lab succeeded")
	}
}
