package network

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// fakeBinaries makes a shell script be the agent.
func fakeBinaries(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"beeline-agent": "#!/bin/sh\n" + script, "beeline-cni": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("BEELINE_BIN", dir)
}

func bareLab(t *testing.T, name string) *testbed.Lab {
	t.Helper()
	testenv.Root(t)
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	return lab
}

func TestAgentThatEndsShowsItsLog(t *testing.T) {
	lab := bareLab(t, "t-agent-ends")
	fakeBinaries(t, "echo the reason >&2; exit 3")
	err := beelineEBPF.Up(t.Context(), lab)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("Up gives %v, want the exit status and the log", err)
	}
	if pid := AgentPID(beelineEBPF, lab.Node(0)); pid != 0 {
		t.Errorf("AgentPID is %d for an agent that ended", pid)
	}
}

func TestAgentThatIsNeverReady(t *testing.T) {
	lab := bareLab(t, "t-agent-mute")
	fakeBinaries(t, `echo "called with $*" >&2; exec sleep 1000`)
	node := lab.Node(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // once the agent has said all it has to say, or after a while
		defer cancel()
		for begin := time.Now(); time.Since(begin) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
			if log, err := os.ReadFile(AgentLog(node)); err == nil && bytes.HasSuffix(log, []byte("\n")) {
				return
			}
		}
	}()
	err := beelineKernel.Up(ctx, lab)
	for _, want := range []string{
		"not ready in time", "called with run --node-name n1", "--routing kernel", "--bpffs " + node.BPFFS,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Up gives %v, want %q in it", err, want)
		}
	}
	if pid := AgentPID(beelineEBPF, node); pid == 0 {
		t.Error("AgentPID is 0 for an agent that runs")
	}
	// A process id that is not one of the node's is another program's by now.
	if err := os.WriteFile(agentPIDFile(node), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if pid := AgentPID(beelineEBPF, node); pid != 0 {
		t.Errorf("AgentPID believes %d, which is not a process of the node", pid)
	}
}

func TestMissingBinaries(t *testing.T) {
	t.Setenv("BEELINE_BIN", t.TempDir())
	if why := beelineEBPF.Unsupported(); !strings.HasPrefix(why, "not installed: ") || !strings.Contains(why, "make build") {
		t.Errorf("Unsupported gives %q", why)
	}
}
