package testenv

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"
)

// recorder notes how a test ends.
type recorder struct {
	testing.TB
	failed, skipped bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true; runtime.Goexit() }
func (r *recorder) Skip(...any)           { r.skipped = true; runtime.Goexit() }

// Where everything is required, only the kernel excuses a skip.
func TestMissing(t *testing.T) {
	for _, test := range []struct {
		require, reason string
		failed          bool
	}{
		{"1", "no time", true}, {"1", "not on this kernel: netkit", false}, {"", "no time", false}, {"", "not on this kernel: netkit", false},
	} {
		t.Setenv("BEELINE_REQUIRE", test.require)
		r := &recorder{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Missing(r, test.reason)
		}()
		<-done
		if r.failed != test.failed || r.skipped == test.failed {
			t.Errorf("BEELINE_REQUIRE=%q, %q: failed %t, skipped %t", test.require, test.reason, r.failed, r.skipped)
		}
	}
}

// A namespace goes with its test also while somebody holds it open.
func TestNetnsGoes(t *testing.T) {
	Root(t)
	var held *os.File
	path := ""
	t.Run("holding", func(t *testing.T) {
		path = NewNetns(t).Path()
		var err error
		if held, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
	})
	defer held.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}
