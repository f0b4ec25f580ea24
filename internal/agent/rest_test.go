package agent

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/policy"
)

// fakeDevices are devices on which programs are put.
type fakeDevices struct {
	mu      sync.Mutex
	whole   map[string]int // those that have all programs, by their index
	broken  map[string]bool
	missing map[string]bool
	// silent get no program for what pods send.
	silent map[string]bool
}

func newFakeDevices() (*fakeDevices, *rest) {
	f := &fakeDevices{whole: map[string]int{}, broken: map[string]bool{}, missing: map[string]bool{}, silent: map[string]bool{}}
	first := func(name string, _ int) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.silent[name] {
			return &datapath.PodError{Egress: errors.New("no first program for " + name)}
		}
		return nil
	}
	put := func(name string, index int) error {
		var e datapath.PodError
		if err := first(name, index); err != nil {
			e.Egress = err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.broken[name] || f.missing[name] {
			e.Ingress = errors.New("no program for " + name)
		}
		if len(e.Unwrap()) > 0 {
			return &e
		}
		f.whole[name] = index
		return nil
	}
	r := newRest(first, put, slog.New(slog.DiscardHandler))
	r.exists = func(name string, _ int) bool { return !f.missing[name] }
	return f, r
}

func (f *fakeDevices) expect(t *testing.T, step string, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(f.whole))); diff != "" {
		t.Errorf("%s: devices with all programs (-want +got):\n%s", step, diff)
	}
}

func podAt(name, address string) agentapi.Endpoint {
	return agentapi.Endpoint{HostDevice: name, HostIfIndex: 7, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
}

func ingressOf(addresses ...string) map[netip.Addr]policy.Sets {
	sets := map[netip.Addr]policy.Sets{netip.MustParseAddr("10.1.1.99"): {Egress: 5}}
	for _, a := range addresses {
		sets[netip.MustParseAddr(a)] = policy.Sets{Ingress: 5}
	}
	return sets
}

// Pods that become governed get what they lack before the rules are in force, as do those that are added while they are.
func TestGuard(t *testing.T) {
	f, r := newFakeDevices()
	for _, e := range []agentapi.Endpoint{podAt("a", "10.1.1.2"), podAt("b", "10.1.1.3"), podAt("c", "10.1.1.4"), podAt("d", "10.1.1.99")} {
		if err := r.add(e); err != nil {
			t.Fatal(err)
		}
	}
	f.expect(t, "added")
	f.broken["b"] = true
	f.missing["c"] = true // the pod ends in this moment
	unguarded := r.guard(ingressOf("10.1.1.2", "10.1.1.3", "10.1.1.4"))
	f.expect(t, "guarded", "a")
	if u := unguarded[netip.MustParseAddr("10.1.1.3")]; len(unguarded) != 1 || u.ingress == nil || u.egress != nil || u.device != "b" {
		t.Errorf("errors: %v", unguarded)
	}
	f.broken["b"] = false
	if unguarded := r.guard(ingressOf("10.1.1.2", "10.1.1.3", "10.1.1.4")); len(unguarded) > 0 {
		t.Errorf("errors: %v", unguarded)
	}
	f.expect(t, "again", "a", "b")

	f.broken["a"] = true
	if err := r.add(podAt("a", "10.1.1.2")); err == nil {
		t.Error("a pod that is governed is added without all programs")
	}
	if err := r.add(podAt("e", "10.1.1.3")); err != nil {
		t.Error(err)
	}
	f.expect(t, "added under rules", "a", "b", "e")
	r.drop("d")
	r.guard(ingressOf("10.1.1.99"))
	f.expect(t, "a device that is gone", "a", "b", "e")
}

// Pods are not guarded in those directions in which they are governed and lack the program; the other one is none of it.
func TestGuardOfDirections(t *testing.T) {
	const address = "10.1.1.2"
	for name, c := range map[string]struct {
		broken, silent  bool
		sets            policy.Sets
		ingress, egress bool
	}{
		"whole":                                  {false, false, policy.Sets{Ingress: 5, Egress: 6}, false, false},
		"what is sent to it":                     {true, false, policy.Sets{Ingress: 5, Egress: 6}, true, false},
		"what it sends":                          {false, true, policy.Sets{Ingress: 5, Egress: 6}, false, true},
		"both":                                   {true, true, policy.Sets{Ingress: 5, Egress: policy.Closed}, true, true},
		"what it sends, which nothing governs":   {false, true, policy.Sets{Ingress: 5}, false, false},
		"what is sent to it, the same":           {true, false, policy.Sets{Egress: 5}, false, false},
		"what it sends, of what governs nothing": {true, true, policy.Sets{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := newFakeDevices()
			f.broken["a"], f.silent["a"] = c.broken, c.silent
			sets := map[netip.Addr]policy.Sets{netip.MustParseAddr(address): c.sets}
			r.guard(sets)
			if lacks, err := r.renew(podAt("a", address)); lacks != (c.ingress || c.egress) && err == nil || (err != nil) != c.silent {
				t.Errorf("taken over: lacks %t, error %v", lacks, err)
			}
			expect := func(step string, ingress, egress bool) {
				t.Helper()
				u := r.guard(sets)[netip.MustParseAddr(address)]
				if (u.ingress != nil) != ingress || (u.egress != nil) != egress {
					t.Errorf("%s: %+v", step, u)
				}
			}
			expect("guarded", c.ingress, c.egress)
			f.broken["a"], f.silent["a"] = false, false
			expect("mended", false, false)
		})
	}
}

// A device whose programs are put on again is one that lacks some until they are, whichever cannot be attached.
func TestRenew(t *testing.T) {
	f, r := newFakeDevices()
	pod := podAt("a", "10.1.1.2")
	if err := r.add(pod); err != nil {
		t.Fatal(err)
	}
	r.guard(ingressOf("10.1.1.2"))
	f.expect(t, "guarded", "a")
	if lacks, err := r.renew(pod); lacks || err != nil || !r.isWhole("a") {
		t.Errorf("renewed: lacks %t, whole %t, error %v", lacks, r.isWhole("a"), err)
	}
	f.broken["a"] = true
	if lacks, err := r.renew(pod); !lacks || err != nil || r.isWhole("a") {
		t.Errorf("the others cannot be attached: lacks %t, whole %t, error %v", lacks, r.isWhole("a"), err)
	}
	r.drop("a")
	r.first = func(string, int) error { return errors.New("no first program") }
	fresh := podAt("b", "10.1.1.2")
	if lacks, err := r.renew(fresh); !lacks || err == nil {
		t.Errorf("the first ones cannot be attached: lacks %t, error %v", lacks, err)
	}
	f.broken["b"] = true
	if unguarded := r.guard(ingressOf("10.1.1.2")); len(unguarded) != 1 {
		t.Errorf("errors: %v", unguarded)
	}
	if lacks, err := r.renew(podAt("free", "10.1.1.5")); lacks || err == nil {
		t.Errorf("a pod that no policy selects: lacks %t, error %v", lacks, err)
	}
}

// What nobody waits for is done when it is quiet, and also if it never is.
func TestRestIsNotPostponedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFakeDevices()
		go func() { _ = r.run(t.Context()) }()
		add := func(name string) {
			if err := r.add(podAt(name, "10.1.1.2")); err != nil {
				t.Fatal(err)
			}
			r.later()
		}
		add("a")
		time.Sleep(restAfter - 1)
		synctest.Wait()
		f.expect(t, "not quiet yet")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		f.expect(t, "quiet", "a")
		add("b")
		for begin := time.Now(); time.Since(begin) < restAtLast; time.Sleep(restAfter / 2) {
			r.later()
		}
		synctest.Wait()
		f.expect(t, "never quiet", "a", "b")
	})
}
