package machine

import (
	"runtime"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	e := Describe(t.Context())
	if e.Kernel == "" || strings.Contains(e.Kernel, "\x00") || e.CPUs < runtime.NumCPU() || e.MemoryBytes < 1<<20 || e.LoadBefore == "" {
		t.Errorf("%+v", e)
	}
}

func TestFieldsOfFilesThatAreNotThere(t *testing.T) {
	if got := readLine("/proc/nothing") + field("/proc/nothing", "x"); got != "" {
		t.Errorf("%q", got)
	}
	if got := field("/proc/meminfo", "MemTotal"); !strings.HasSuffix(got, " kB") {
		t.Errorf("memory: %q", got)
	}
}
