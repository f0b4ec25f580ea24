package reconcile

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Only relevant changes cause a reconciliation.
func TestTake(t *testing.T) {
	nodes := []cluster.Node{{Name: "a"}}
	r := &Reconciler{Options: Options{Lock: &sync.Mutex{}}}
	for i, step := range []struct {
		s    *cluster.Snapshot
		want bool
	}{
		{&cluster.Snapshot{Nodes: nodes, Incomplete: true}, true},
		{&cluster.Snapshot{Nodes: nodes}, true},
		{&cluster.Snapshot{Nodes: nodes, Pods: cluster.ListOf(&cluster.Pod{Name: "p"})}, false},
		{&cluster.Snapshot{Nodes: []cluster.Node{{Name: "a"}}}, true},
		{&cluster.Snapshot{}, true},
		{&cluster.Snapshot{}, false},
	} {
		if got := r.take(step.s); got != step.want || r.snapshot != step.s {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}

// Probes learn whether the node is ready while the lock is held for good.
func TestReadyWithoutLock(t *testing.T) {
	var lock sync.Mutex
	lock.Lock() // and never released
	r, err := New(Options{Lock: &lock})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "not finished starting") {
		t.Errorf("a node is ready before its first reconciliation: %v", err)
	}
	r.failure = nil
	r.updateReadiness()
	if err := r.Ready(); err != nil {
		t.Errorf("after a reconciliation: %v", err)
	}
	r.notInstalled = errors.New("no plugin")
	r.updateReadiness()
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "no plugin") {
		t.Errorf("a node is ready without its plugin: %v", err)
	}
}
