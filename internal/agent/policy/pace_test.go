package policy

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// slowly makes a compiler that takes a time, and counts what it compiles.
func slowly(p *Policies, took time.Duration) *atomic.Int64 {
	compile, passes := p.compile, &atomic.Int64{}
	p.compile = func(s *cluster.Snapshot, l policy.Local) (*policy.Tables, []policy.Problem) {
		passes.Add(1)
		time.Sleep(took)
		return compile(s, l)
	}
	return passes
}

// changed gives a snapshot that differs from another for policies.
func changed(s *cluster.Snapshot) *cluster.Snapshot {
	other := *s
	other.NetworkPolicies = slices.Clone(s.NetworkPolicies)
	return &other
}

// However often something changes, passes take a tenth of a CPU, a quarter where they are long, or what the longest
// gap leaves them. The last change becomes active without another one.
func TestPassesArePaced(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		least int64
		most  int64
	}{{10 * time.Millisecond, 150, 201}, {time.Millisecond, 900, 2001}, {500 * time.Millisecond, 8, 21}} {
		synctest.Test(t, func(t *testing.T) {
			_, p := newFakePolicies()
			p.UpdateNode(nil)
			snapshot := policySnapshot("shop")
			passes := slowly(p, c.took)
			begin := time.Now()
			p.spent = func() time.Duration { return time.Since(begin) } // a pass here has the CPU for itself
			go func() { _ = p.Run(t.Context()) }()
			for range 5000 {
				snapshot = changed(snapshot)
				p.Update(snapshot)
				time.Sleep(2 * time.Millisecond)
			}
			// A pass that finds newer inputs after compiling compiles again.
			if n := passes.Load(); n < c.least || n > 2*c.most {
				t.Errorf("passes of %s: %d in 10 s, want %d to %d", c.took, n, c.least, 2*c.most)
			}
			time.Sleep(2 * (passLongest + 2*c.took))
			if p.current().snapshot != snapshot {
				t.Errorf("passes of %s: the last change is not active", c.took)
			}
		})
	}
}

// A pod that is added while a pass compiles is active with that pass: it waits for no other.
func TestAddWaitsForOnePass(t *testing.T) {
	table, p := newFakePolicies()
	compile, compiling, goOn, compiled := p.compile, make(chan bool), make(chan bool), 0
	p.compile = func(s *cluster.Snapshot, l policy.Local) (*policy.Tables, []policy.Problem) {
		if compiled++; compiled == 1 {
			close(compiling)
			<-goOn
		}
		return compile(s, l)
	}
	p.Update(policySnapshot("shop"))
	passed := make(chan error, 1)
	go func() { passed <- p.Pass() }()
	<-compiling
	added := policy.LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "web"}, Addresses: []netip.Addr{webAddress}}
	number, err := p.close([]policy.LocalPod{added}, added.Addresses)
	if err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := errors.Join(<-passed, p.PassAt(number)); err != nil {
		t.Fatal(err)
	}
	if table.syncs != 1 || compiled != 2 || table.of(webAddress) != webSets {
		t.Errorf("it waited for %d passes with %d compilations, and has %+v", table.syncs, compiled, table.of(webAddress))
	}
}

// The CPU time of a thread is what it ran, not what it waited.
func TestThreadTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	time.Sleep(50 * time.Millisecond)
	if waited := threadTime() - before; waited > 25*time.Millisecond {
		t.Errorf("to wait for 50ms takes %s of a CPU", waited)
	}
	for before = threadTime(); threadTime()-before < 5*time.Millisecond; {
		continue // it ends
	}
}

// A short pass takes at most a tenth of a CPU; a longer one delays a change by a tenth of a second, or takes a
// quarter.
func TestPaceOfPasses(t *testing.T) {
	for pass, want := range map[time.Duration]time.Duration{
		time.Millisecond:       9 * time.Millisecond,
		10 * time.Millisecond:  90 * time.Millisecond,
		20 * time.Millisecond:  100 * time.Millisecond,
		50 * time.Millisecond:  150 * time.Millisecond,
		200 * time.Millisecond: 500 * time.Millisecond,
	} {
		if got := gapAfter(pass); got != want {
			t.Errorf("after a pass of %s changes coalesce for %s, want %s", pass, got, want)
		}
	}
}
