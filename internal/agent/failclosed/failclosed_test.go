package failclosed

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/policy"
)

// fakeKernel holds what Pods attaches and closes.
type fakeKernel struct {
	// complete are devices with all programs, by their index. Those in noIngress and noEgress cannot get one of them; gone do not exist.
	complete                  map[string]int
	noIngress, noEgress, gone map[string]bool

	closed route.Blackholes
	syncs  int
	fail   error
}

// newPods makes a Pods of an agent that has adopted the pods of an earlier one.
func newPods() (*fakeKernel, *Pods) {
	f, p := newPodsBeforeAdoption()
	p.AdoptionDone()
	return f, p
}

func newPodsBeforeAdoption() (*fakeKernel, *Pods) {
	f := &fakeKernel{complete: map[string]int{}, noIngress: map[string]bool{}, noEgress: map[string]bool{}, gone: map[string]bool{}}
	return f, New(Kernel{Attach: f.attach, Exists: func(name string, _ int) bool { return !f.gone[name] }, SyncClosed: f.sync}, true, slog.New(slog.DiscardHandler))
}

func (f *fakeKernel) attach(name string, index int) error {
	var e attach.PodError
	if f.noIngress[name] || f.gone[name] {
		e.Ingress = errors.New("no to_pod for " + name)
	}
	if f.noEgress[name] || f.gone[name] {
		e.Egress = errors.New("no from_pod for " + name)
	}
	delete(f.complete, name)
	if len(e.Unwrap()) > 0 {
		return &e
	}
	f.complete[name] = index
	return nil
}

func (f *fakeKernel) sync(closed route.Blackholes, keep bool) (changed int, err error) {
	f.syncs++
	if f.fail != nil {
		return 0, f.fail
	}
	if keep {
		closed.To, closed.From = slices.Concat(closed.To, f.closed.To), slices.Concat(closed.From, f.closed.From)
		slices.SortFunc(closed.To, netip.Addr.Compare)
		slices.Sort(closed.From)
		closed.To, closed.From = slices.Compact(closed.To), slices.Compact(closed.From)
	}
	f.closed = closed
	return 1, nil
}

func (f *fakeKernel) expectComplete(t *testing.T, step string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(f.complete)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: devices with all programs (-want +got):\n%s", step, diff)
	}
}

func (f *fakeKernel) expectClosed(t *testing.T, step string, syncs int, want route.Blackholes) {
	t.Helper()
	if diff := cmp.Diff(want, f.closed, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("%s: closed (-want +got):\n%s", step, diff)
	}
	if f.syncs != syncs {
		t.Errorf("%s: rules were written %d times, want %d", step, f.syncs, syncs)
	}
	f.syncs = 0
}

var webAddress = netip.MustParseAddr("10.1.1.2")

// closedWeb is what is closed of the pod of webAddress in these directions.
func closedWeb(ingress, egress bool) (c route.Blackholes) {
	if ingress {
		c.To = []netip.Addr{webAddress}
	}
	if egress {
		c.From = []string{"bl1"}
	}
	return c
}

func podAt(name, address string) Pod {
	return Pod{Device: name, Index: 7, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
}

func ingressOf(addresses ...string) map[netip.Addr]policy.Sets {
	sets := map[netip.Addr]policy.Sets{netip.MustParseAddr("10.1.1.99"): {Egress: 5}}
	for _, a := range addresses {
		sets[netip.MustParseAddr(a)] = policy.Sets{Ingress: 5}
	}
	return sets
}

// A new pod has all programs from the start, whether policies select it or not; without one it is not added.
func TestAddNeedsAllPrograms(t *testing.T) {
	f, p := newPods()
	for name, broken := range map[string]map[string]bool{"ingress": f.noIngress, "egress": f.noEgress} {
		broken["a"] = true
		if err := p.Add(podAt("a", "10.1.1.2")); err == nil {
			t.Errorf("a pod is added without the program for %s", name)
		}
		f.expectComplete(t, name+" fails")
		broken["a"] = false
		if err := p.Add(podAt("a", "10.1.1.2")); err != nil {
			t.Error(err)
		}
		f.expectComplete(t, name+" works", "a")
	}
}

// Pods that policies come to select get missing programs before the sets are active, as do pods that are added meanwhile.
func TestUpdateAttachesWhatIsMissing(t *testing.T) {
	f, p := newPods()
	p.Update(ingressOf())
	f.noIngress = map[string]bool{"a": true, "b": true, "c": true, "d": true}
	for _, pod := range []Pod{podAt("a", "10.1.1.2"), podAt("b", "10.1.1.3"), podAt("c", "10.1.1.4"), podAt("d", "10.1.1.99")} {
		if lacks, err := p.Adopt(pod); err == nil || lacks {
			t.Fatalf("adopted without a program that no policy needs: lacks %t, error %v", lacks, err)
		}
	}
	f.expectComplete(t, "adopted")
	f.noIngress["a"], f.noIngress["d"] = false, false
	f.gone["c"] = true // the pod ends in this moment
	missing := p.Update(ingressOf("10.1.1.2", "10.1.1.3", "10.1.1.4"))
	f.expectComplete(t, "updated", "a") // egress of d has its program
	if m := missing[netip.MustParseAddr("10.1.1.3")]; len(missing) != 1 || m.Ingress == nil || m.Egress != nil || m.Device != "b" {
		t.Errorf("missing: %v", missing)
	}
	f.noIngress["b"] = false
	if missing := p.Update(ingressOf("10.1.1.2", "10.1.1.3", "10.1.1.4")); len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	f.expectComplete(t, "again", "a", "b")
	if err := p.Add(podAt("e", "10.1.1.3")); err != nil {
		t.Error(err)
	}
	f.expectComplete(t, "added while sets are active", "a", "b", "e")
	f.noEgress["g"] = true
	if lacks, err := p.Adopt(podAt("g", "10.1.1.99")); err == nil || !lacks {
		t.Errorf("adopted without a program: lacks %t, error %v", lacks, err)
	}
	p.Remove("d")
	p.Remove("g")
	f.noEgress["g"] = false
	p.Update(ingressOf("10.1.1.99"))
	f.expectComplete(t, "a device that is gone", "a", "b", "e")
}

// A pod is closed for what comes to it if a policy selects it and the program is missing, and for what it sends if the program is
// missing.
func TestUpdateClosesDirections(t *testing.T) {
	const address = "10.1.1.2"
	for name, c := range map[string]struct {
		noIngress, noEgress bool
		sets                policy.Sets
		ingress, egress     bool
	}{
		"complete":                             {false, false, policy.Sets{Ingress: 5, Egress: 6}, false, false},
		"ingress":                              {true, false, policy.Sets{Ingress: 5, Egress: 6}, true, false},
		"egress":                               {false, true, policy.Sets{Ingress: 5, Egress: 6}, false, true},
		"both":                                 {true, true, policy.Sets{Ingress: 5, Egress: policy.DenyAll}, true, true},
		"egress, which no policy selects":      {false, true, policy.Sets{Ingress: 5}, false, true},
		"ingress, which no policy selects":     {true, false, policy.Sets{Egress: 5}, false, false},
		"both, of a pod no policy selects":     {true, true, policy.Sets{}, false, true},
		"one of two directions of one policy":  {true, true, policy.Sets{Ingress: policy.DenyAll}, true, true},
		"the other direction of one policy":    {true, true, policy.Sets{Egress: policy.DenyAll}, false, true},
		"complete, of a pod no policy selects": {false, false, policy.Sets{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := newPods()
			f.noIngress["bl1"], f.noEgress["bl1"] = c.noIngress, c.noEgress
			sets := map[netip.Addr]policy.Sets{netip.MustParseAddr(address): c.sets}
			p.Update(sets)
			f.syncs = 0
			if lacks, err := p.Adopt(podAt("bl1", address)); lacks != (c.ingress || c.egress) || (err != nil) != (c.noIngress || c.noEgress) {
				t.Errorf("adopted: lacks %t, error %v", lacks, err)
			}
			syncs := 0
			if c.ingress || c.egress {
				syncs = 1
			}
			expect := func(step string, syncs int, ingress, egress bool) {
				t.Helper()
				m := p.Update(sets)[netip.MustParseAddr(address)]
				if (m.Ingress != nil) != ingress || (m.Egress != nil) != egress {
					t.Errorf("%s: %+v", step, m)
				}
				f.expectClosed(t, step, syncs, closedWeb(ingress, egress))
			}
			f.expectClosed(t, "adopted", syncs, closedWeb(c.ingress, c.egress))
			expect("closed", 0, c.ingress, c.egress)
			f.noIngress["bl1"], f.noEgress["bl1"] = false, false
			expect("mended", syncs, false, false)
		})
	}
}

// A device whose programs are attached again lacks one until all are, whichever cannot be attached.
func TestAdoptAgain(t *testing.T) {
	f, p := newPods()
	pod := podAt("a", "10.1.1.2")
	if err := p.Add(pod); err != nil {
		t.Fatal(err)
	}
	p.Update(ingressOf("10.1.1.2"))
	f.expectComplete(t, "updated", "a")
	if lacks, err := p.Adopt(pod); lacks || err != nil {
		t.Errorf("adopted: lacks %t, error %v", lacks, err)
	}
	f.expectComplete(t, "adopted", "a")
	check := func(attached error, want bool) {
		t.Helper()
		p.ForgetDetached(func(string, int) error { return attached })
		if p.Attached("a", pod.Index) != want || p.Attached("a", pod.Index+1) {
			t.Errorf("attached, with %v: want %t", attached, want)
		}
	}
	check(nil, true)
	check(errors.New("a program is gone"), false)
	p.Update(ingressOf("10.1.1.2"))
	check(nil, true)
	check(errors.New("a program is gone"), false)
	f.noIngress["a"] = true
	if lacks, err := p.Adopt(pod); !lacks || err == nil {
		t.Errorf("to_pod cannot be attached: lacks %t, error %v", lacks, err)
	}
	f.expectComplete(t, "to_pod cannot be attached")
	p.Remove("a")
	f.noIngress["b"], f.noEgress["b"] = true, true
	if lacks, err := p.Adopt(podAt("b", "10.1.1.2")); !lacks || err == nil {
		t.Errorf("no program can be attached: lacks %t, error %v", lacks, err)
	}
	if missing := p.Update(ingressOf("10.1.1.2")); len(missing) != 1 {
		t.Errorf("missing: %v", missing)
	}
	f.noEgress["free"] = true
	f.syncs = 0
	if lacks, err := p.Adopt(podAt("free", "10.1.1.5")); !lacks || err == nil {
		t.Errorf("a pod that no policy selects and whose source addresses are not checked: lacks %t, error %v", lacks, err)
	}
	f.expectClosed(t, "a second pod", 1, route.Blackholes{To: []netip.Addr{webAddress}, From: []string{"b", "free"}})
	f.noIngress["busy"] = true
	if lacks, err := p.Adopt(podAt("busy", "10.1.1.6")); lacks || err == nil {
		t.Errorf("a pod that no policy selects: lacks %t, error %v", lacks, err)
	}
}

// A pod is closed by its addresses of both families, also if a policy selects it by one of them.
func TestBothFamilies(t *testing.T) {
	f, p := newPods()
	pod := podAt("bl1", "10.1.1.2")
	pod.Addresses = append(pod.Addresses, netip.MustParseAddr("fd00::2"))
	sets := map[netip.Addr]policy.Sets{pod.Addresses[1]: {Ingress: 5}}
	p.Update(sets)
	f.noIngress["bl1"], f.noEgress["bl1"] = true, true
	if lacks, err := p.Adopt(pod); !lacks || err == nil {
		t.Errorf("adopted: lacks %t, error %v", lacks, err)
	}
	closed := route.Blackholes{To: pod.Addresses, From: []string{"bl1"}}
	f.expectClosed(t, "adopted", 2, closed)
	p.Update(sets)
	f.expectClosed(t, "updated", 0, closed)
}

// A pod that the kernel does not close is reported as open.
func TestOpenIsReported(t *testing.T) {
	f, p := newPods()
	f.fail = errors.New("no memory")
	f.noEgress["bl1"] = true
	if _, err := p.Adopt(podAt("bl1", "10.1.1.2")); !errors.Is(err, f.fail) {
		t.Errorf("adopted: %v", err)
	}
	missing := p.Update(ingressOf())
	if reason, open := Reason(missing, false); reason == nil || !errors.Is(open, f.fail) {
		t.Errorf("for what it sends: %v, open: %v", reason, open)
	}
	if reason, open := Reason(missing, true); reason != nil || open != nil {
		t.Errorf("for what comes to it: %v, open: %v", reason, open)
	}
}

// The error of an incomplete attachment that names no direction is one of both.
func TestErrorWithoutDirection(t *testing.T) {
	p := New(Kernel{
		Attach:     func(string, int) error { return errors.New("no device") },
		Exists:     func(string, int) bool { return true },
		SyncClosed: (&fakeKernel{}).sync,
	}, true, slog.New(slog.DiscardHandler))
	_, _ = p.Adopt(podAt("a", "10.1.1.2"))
	m := p.Update(map[netip.Addr]policy.Sets{webAddress: {Ingress: 5, Egress: 5}})[webAddress]
	if m.Ingress == nil || m.Egress == nil {
		t.Errorf("missing: %+v", m)
	}
}

// Rules are written once, restored when somebody else removes them, and left as an earlier agent had them until its pods are adopted.
func TestRules(t *testing.T) {
	f, p := newPodsBeforeAdoption()
	other := route.Blackholes{To: []netip.Addr{netip.MustParseAddr("10.1.1.9")}, From: []string{"bl9"}}
	f.closed = other
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(p.Reconcile())
	f.expectClosed(t, "before the adoption", 1, other)
	p.AdoptionDone()
	must(p.rules.set(closedWeb(true, true)))
	f.expectClosed(t, "known", 1, closedWeb(true, true))
	must(p.rules.set(closedWeb(true, true)))
	f.expectClosed(t, "as before", 0, closedWeb(true, true))
	f.closed = route.Blackholes{}
	must(p.Reconcile())
	f.expectClosed(t, "opened by somebody else", 1, closedWeb(true, true))
	must(p.rules.set(closedWeb(true, false)))
	f.expectClosed(t, "one direction", 1, closedWeb(true, false))
	must(p.rules.set(closedWeb(false, true)))
	f.expectClosed(t, "the other one", 1, closedWeb(false, true))
	f.fail = errors.New("no memory")
	if err := p.rules.set(route.Blackholes{}); !errors.Is(err, f.fail) {
		t.Errorf("error %v", err)
	}
	f.fail, f.syncs = nil, 0
	must(p.rules.set(route.Blackholes{}))
	f.expectClosed(t, "tried again", 1, route.Blackholes{})

	f, p = newPodsBeforeAdoption()
	f.closed = other
	p.enforcing = false
	must(p.Reconcile())
	f.expectClosed(t, "without policies", 1, route.Blackholes{})
	f.noIngress["bl1"], f.noEgress["bl1"] = true, true
	if lacks, err := p.Adopt(podAt("bl1", "10.1.1.2")); lacks || err == nil {
		t.Errorf("adopted: lacks %t, error %v", lacks, err)
	}
	f.expectClosed(t, "without policies, adopted", 0, route.Blackholes{})
	p.Remove("bl2")
	f.expectClosed(t, "without policies, another pod is deleted", 0, route.Blackholes{})
}

// Before policies are known, a pod without a program is closed beside those that an earlier agent closed, until it has the program or
// is deleted.
func TestAdoptBeforePoliciesAreKnown(t *testing.T) {
	f, p := newPodsBeforeAdoption()
	f.closed = route.Blackholes{From: []string{"bl9"}}
	f.noIngress["bl1"], f.noEgress["bl2"], f.gone["bl3"] = true, true, true
	adopt := func(name, address string, want bool) {
		t.Helper()
		if lacks, err := p.Adopt(podAt(name, address)); lacks != want || (err == nil) != (len(f.noIngress) == 0) {
			t.Errorf("%s: lacks %t, error %v", name, lacks, err)
		}
	}
	adopt("bl1", "10.1.1.2", true)
	adopt("bl2", "10.1.1.3", true)
	adopt("bl3", "10.1.1.4", false)
	f.expectClosed(t, "adopted", 2, route.Blackholes{To: []netip.Addr{webAddress}, From: []string{"bl2", "bl9"}})
	p.AdoptionDone()
	f.closed = route.Blackholes{}
	if err := p.Reconcile(); err != nil {
		t.Error(err)
	}
	f.expectClosed(t, "opened by somebody else", 1, route.Blackholes{To: []netip.Addr{webAddress}, From: []string{"bl2"}})
	delete(f.noIngress, "bl1")
	adopt("bl1", "10.1.1.2", false)
	f.expectClosed(t, "mended", 1, route.Blackholes{From: []string{"bl2"}})
	p.Remove("bl2")
	f.expectClosed(t, "deleted", 1, route.Blackholes{})
}

// A pod that is adopted while an Update without it is about to write the rules stays closed.
func TestAdoptDuringUpdate(t *testing.T) {
	f, p := newPods()
	_ = p.Add(podAt("a", "10.1.1.3"))
	f.noEgress["a"], f.noEgress["bl1"] = true, true
	p.ForgetDetached(func(string, int) error { return errors.New("a program is gone") })
	exists, adopted := p.kernel.Exists, make(chan struct{})
	p.kernel.Exists = func(name string, index int) bool {
		p.kernel.Exists = exists
		go func() {
			_, _ = p.Adopt(podAt("bl1", "10.1.1.2"))
			close(adopted)
		}()
		select {
		case <-adopted:
		case <-time.After(50 * time.Millisecond): // it waits for the Update
		}
		return true
	}
	p.Update(ingressOf())
	<-adopted
	if want := []string{"a", "bl1"}; !slices.Equal(f.closed.From, want) {
		t.Errorf("closed %q, want %q", f.closed.From, want)
	}
}

// What an earlier agent closed and this one does not need closed is opened when all pods have been adopted.
func TestOpenedAfterAdoption(t *testing.T) {
	f, p := newPodsBeforeAdoption()
	f.closed = closedWeb(true, true)
	if err := errors.Join(p.rules.set(route.Blackholes{}), p.Reconcile()); err != nil {
		t.Fatal(err)
	}
	f.expectClosed(t, "not adopted", 2, closedWeb(true, true))
	p.AdoptionDone()
	if err := p.Reconcile(); err != nil {
		t.Fatal(err)
	}
	f.expectClosed(t, "adopted", 1, route.Blackholes{})
}

// An Update that does not know all pods yet opens none, even if the adoption ends before it has written the rules.
func TestAdoptionEndsDuringUpdate(t *testing.T) {
	f, p := newPodsBeforeAdoption()
	f.closed = closedWeb(true, true)
	f.noIngress["a"] = true
	_ = p.Add(podAt("a", "10.1.1.3"))
	attach, ended := p.kernel.Attach, make(chan struct{})
	p.kernel.Attach = func(name string, index int) error {
		p.kernel.Attach = attach
		f.noIngress["a"] = false
		go func() {
			p.AdoptionDone()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(50 * time.Millisecond): // it waits for the Update
		}
		return attach(name, index)
	}
	if missing := p.Update(ingressOf("10.1.1.3")); len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	f.expectClosed(t, "updated", 1, closedWeb(true, true))
	<-ended
	p.Update(ingressOf("10.1.1.3"))
	f.expectClosed(t, "updated again", 1, route.Blackholes{})
}
