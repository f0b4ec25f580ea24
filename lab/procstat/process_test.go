package procstat

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

func TestProcess(t *testing.T) {
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if got, err := ProcessTime(os.Getpid()); err != nil || got <= 0 || got > time.Minute {
		t.Errorf("own process: %v, %v", got, err)
	}
	if _, err := ProcessTime(1 << 30); err == nil {
		t.Error("a process that does not exist has CPU time")
	}
	if got, err := ProcessMemory(os.Getpid()); err != nil || got < 1<<20 || got > 1<<32 {
		t.Errorf("own memory: %d bytes, %v", got, err)
	}
	if _, err := ProcessMemory(1 << 30); err == nil {
		t.Error("a process that does not exist has memory")
	}
	if got := Processes()[os.Getpid()]; got.Name == "" {
		t.Error("this process is not among those that run")
	}
}

// proc makes a directory like /proc with one file.
func proc(t *testing.T, name, text string) procfs.FS {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestPackets(t *testing.T) {
	const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      77    0    0    0     0          0         0     1000      77    0    0    0     0       0          0
  eth0:  123456     100    0    0    0     0          0         0   654321     250    0    0    0     0       0          0
`
	if got, err := packets(proc(t, "net/dev", devices)); err != nil || got != 350 {
		t.Errorf("%v, %v; want 350 packets, without lo", got, err)
	}
}

// The name of a process may have spaces and parentheses.
func TestStatTime(t *testing.T) {
	fs := proc(t, "42/stat", "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 8 0 100 1000 200 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	p, err := fs.Proc(42)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if got := statTime(stat); got != 3*time.Second || stat.Comm != "a (b) c" {
		t.Errorf("%q, %v; want 3 s", stat.Comm, got)
	}
}

// TestKernelWorkers finds time of the kernel's workers: a machine that has booted has some.
func TestKernelWorkers(t *testing.T) {
	before := KernelWorkers()
	if before <= 0 || before > 10*365*24*time.Hour {
		t.Errorf("the kernel's workers have used %v", before)
	}
}
