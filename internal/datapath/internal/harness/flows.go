package harness

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	dpflow "github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/flow"
)

// Watch opens the events of a harness.
func (r *Harness) Watch(t *testing.T) *dpflow.Reader {
	t.Helper()
	reader, err := r.D.Events.Reader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	return reader
}

// ReadEvents returns the events since the last call.
func ReadEvents(t *testing.T, reader *dpflow.Reader) (all []flow.Event) {
	t.Helper()
	if err := reader.Read(0, func(e flow.Event) { all = append(all, e) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// PinnedTo moves the netns thread to a CPU until the end of the test.
func PinnedTo(t *testing.T, r *Harness, cpu int) {
	t.Helper()
	var before, one unix.CPUSet
	one.Set(cpu)
	r.Netns.Do(func() {
		if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		r.Netns.Do(func() {
			if err := unix.SchedSetaffinity(0, &before); err != nil {
				t.Error(err)
			}
		})
	})
}
