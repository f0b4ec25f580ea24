package reconcile

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// Only relevant changes cause a reconciliation.
func TestTake(t *testing.T) {
	nodes := []cluster.Node{{Name: "a"}}
	r := &Reconciler{Options: Options{Lock: &sync.Mutex{}, Endpoints: &endpoint.Endpoints{}}}
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
		if got, _ := r.take(step.s); got != step.want || r.snapshot != step.s {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}

// Probes learn whether the node is ready, and whether it leaves, while the lock is held for good.
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
	if r.Leaving() {
		t.Error("a node leaves before it is known")
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

// A failed reconciliation is published at once: to probes, metrics and readers.
func TestFailureIsPublished(t *testing.T) {
	var reported error
	changed := 0
	r, err := New(Options{
		Lock: &sync.Mutex{}, Endpoints: &endpoint.Endpoints{}, Log: slog.New(slog.DiscardHandler),
		Reconciled: func(_ time.Duration, err error) { reported = err }, Changed: func() { changed++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.failure = nil
	r.updateReadiness()
	r.reconcile() // without a snapshot
	if !errors.Is(r.Ready(), ErrNotReady) || !errors.Is(reported, ErrNotReady) || changed != 1 {
		t.Errorf("probes get %v, metrics %v, readers %d changes", r.Ready(), reported, changed)
	}
}

// Before the IPClaims are known, nothing is written: routes to pods of other nodes would be removed. Each snapshot is a new attempt, also
// one that differs in nothing but what it knows.
func TestWaitsForClaims(t *testing.T) {
	all := &cluster.Snapshot{}
	r, err := New(Options{
		Lock: &sync.Mutex{}, Endpoints: &endpoint.Endpoints{}, Log: slog.New(slog.DiscardHandler),
		PoolAddressesKnown: func() bool { return false }, Reconciled: func(time.Duration, error) {}, Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if isNew, _ := r.take(all); !isNew {
		t.Error("the first snapshot is no reason to reconcile")
	}
	r.reconcile()
	if err := r.Ready(); !errors.Is(err, errClaimsMissing) {
		t.Errorf("probes get %v", err)
	}
	if isNew, _ := r.take(all); !isNew {
		t.Error("a later snapshot is no reason to reconcile")
	}
	r.failure = nil
	if isNew, _ := r.take(all); isNew {
		t.Error("a snapshot without changes is a reason to reconcile")
	}
}

// The first IPPool that is created while the agent runs does not make the node unready until its IPClaims are known. There is no kernel
// here: an attempt panics.
func TestFirstPoolLeavesNodeReady(t *testing.T) {
	r, err := New(Options{
		Lock: &sync.Mutex{}, Endpoints: &endpoint.Endpoints{}, Log: slog.New(slog.DiscardHandler),
		PoolAddressesKnown: func() bool { return false }, Reconciled: func(time.Duration, error) {}, Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.take(&cluster.Snapshot{})
	r.succeeded = true
	defer func() {
		if recover() == nil {
			t.Errorf("the node is not reconciled: %v", r.failure)
		}
	}()
	r.reconcile()
}

// What the last reconciliation did not complete is left to the next one. There is no kernel here: an attempt panics.
func TestFailureNeedsReconciliation(t *testing.T) {
	known, all := &node.Facts{}, &cluster.Snapshot{}
	for name, c := range map[string]struct {
		r      *Reconciler
		renews bool
	}{
		"it failed":                 {&Reconciler{known: known, vouches: true, failure: errors.New("failed"), snapshot: all}, false},
		"it did not write routes":   {&Reconciler{known: known, snapshot: all}, false},
		"a step failed":             {&Reconciler{vouches: true, snapshot: all}, true},
		"it did not know all nodes": {&Reconciler{known: known, vouches: true, snapshot: &cluster.Snapshot{Incomplete: true}}, true},
	} {
		c.r.Lock = &sync.Mutex{}
		if c.r.reconcileNodes() {
			t.Errorf("%s, but changed nodes are applied without it", name)
		}
		if !c.renews {
			c.r.renewLease()
		}
	}
}
