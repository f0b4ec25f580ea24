package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// fakeClosing is what the kernel has of a closer's.
type fakeClosing struct {
	closed []netip.Addr
	syncs  int
	fail   error
}

func newFakeClosing() (*fakeClosing, *closer) {
	f := &fakeClosing{}
	return f, &closer{log: slog.New(slog.DiscardHandler), sync: func(addresses []netip.Addr) (changed int, err error) {
		f.syncs++
		if f.fail != nil {
			return 0, f.fail
		}
		changed = len(addresses) - len(f.closed)
		f.closed = addresses
		return changed, nil
	}}
}

func (f *fakeClosing) expect(t *testing.T, step string, syncs int, want ...netip.Addr) {
	t.Helper()
	if diff := cmp.Diff(want, f.closed, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("%s: closed (-want +got):\n%s", step, diff)
	}
	if f.syncs != syncs {
		t.Errorf("%s: written %d times, want %d", step, f.syncs, syncs)
	}
	f.syncs = 0
}

// A pod without the program for what the host's stack sends to it is closed for that before rules are in force, and named with its
// policies, as open if it cannot be closed; everything else is in force, and it is tried again.
func TestPodThatCannotBeGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		open          error
		state, reason string
		text          string
		pods          int
	}{
		"closed": {nil, api.PolicyClosed, reasonPolicyClosed, "NetworkPolicy shop/p: pod shop/web is closed for what the host's stack forwards to it: no program", 1},
		"open":   {errors.New("no rule"), api.PolicyPending, reasonPolicyOpen, "NetworkPolicy shop/p: pod shop/web is open for what the host's stack sends to it: no program", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, p := newFakePolicies()
				kernel, closer := newFakeClosing()
				kernel.fail = c.open
				broken := true
				p.guard = closer.guard(func(sets map[netip.Addr]policy.Sets) map[netip.Addr]error {
					if table.syncs != 0 && broken {
						t.Error("guarded after rules were put into force")
					}
					if _, ok := sets[webAddress]; ok && broken {
						return map[netip.Addr]error{webAddress: errors.New("no program")}
					}
					return nil
				})
				p.deliver(policySnapshot("other", "shop"))
				p.setPods([]policy.LocalPod{webLocal})
				mustPass(t, p)
				expectSets(t, "not guarded", table, webSets)
				if c.open == nil {
					kernel.expect(t, "not guarded", 1, webAddress)
				}
				state := func(namespace string) policyState {
					return p.current().states[cluster.Key{Namespace: namespace, Name: "p"}]
				}
				if s := state("shop"); s.state != c.state || !strings.Contains(s.reason, "no program") {
					t.Errorf("state %+v", s)
				}
				if s := state("other"); s.state != api.PolicyInForce {
					t.Errorf("another policy: state %+v", s)
				}
				if o := p.current(); !o.filled || !slices.ContainsFunc(o.all(), func(text string) bool { return strings.HasPrefix(text, c.text) }) {
					t.Errorf("filled %t, problems %q", o.filled, o.all())
				}
				a := &Agent{policies: p, snapshot: p.current().snapshot}
				if of, others := a.policyWarnings(); len(of) != 1 || of[0].reason != c.reason || of[0].UID != "of-shop" || len(others) > 0 {
					t.Errorf("Events of policies %+v, of the node %q", of, others)
				}
				if s := a.policyStatus(); s.ClosedPods != c.pods || s.Closed != c.pods || s.Pending != 1-c.pods {
					t.Errorf("status %+v", s)
				}
				<-p.wake // of what was delivered
				broken, kernel.fail, kernel.syncs = false, nil, 0
				go func() { _ = p.run(t.Context()) }()
				time.Sleep(policyRetry + 1)
				synctest.Wait()
				if o := p.current(); len(o.all()) > 0 || state("shop").state != api.PolicyInForce {
					t.Errorf("problems %q, state %+v", o.all(), state("shop"))
				}
				kernel.expect(t, "guarded", 1)
			})
		})
	}
}

// Addresses are closed once, put back when somebody opens them, and left as an earlier agent had them until policies are known.
func TestCloser(t *testing.T) {
	kernel, c := newFakeClosing()
	other := netip.MustParseAddr("10.1.1.9")
	kernel.closed = []netip.Addr{other}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(c.renew(false))
	kernel.expect(t, "before policies are known", 0, other)
	must(c.set([]netip.Addr{webAddress}))
	kernel.expect(t, "known", 1, webAddress)
	must(c.set([]netip.Addr{webAddress}))
	kernel.expect(t, "as before", 0, webAddress)
	kernel.closed = nil
	must(c.renew(false))
	kernel.expect(t, "opened by somebody else", 1, webAddress)
	kernel.fail = errors.New("no memory")
	if err := c.set(nil); !errors.Is(err, kernel.fail) {
		t.Errorf("error %v", err)
	}
	kernel.fail, kernel.syncs = nil, 0
	must(c.set(nil))
	kernel.expect(t, "tried again", 1)

	kernel, c = newFakeClosing()
	kernel.closed = []netip.Addr{other}
	must(c.renew(true))
	kernel.expect(t, "without policies", 1)
}

// An agent that takes over a pod whose program for what is sent to it cannot be attached closes the pod, and goes on.
func TestPodThatCannotBeGuardedIsTakenOver(t *testing.T) {
	devices, r := newFakeDevices()
	kernel, closer := newFakeClosing()
	table, p := newFakePolicies()
	p.guard = closer.guard(r.guard)
	p.deliver(policySnapshot("shop"))
	p.setPods([]policy.LocalPod{webLocal})
	mustPass(t, p)
	kernel.expect(t, "no device is known", 1)
	devices.broken["bl1"] = true
	a := &Agent{
		policies: p, rest: r,
		endpoints: map[string]api.Endpoint{"bl1": {HostDevice: "bl1", HostIfIndex: 7, Addresses: []netip.Addr{webAddress}}},
	}
	a.attachPods(func(name string, index int, put func(string, int) error) {
		if err := put(name, index); err != nil {
			t.Error(err)
		}
	})
	kernel.expect(t, "taken over", 1, webAddress)
	if r.isWhole("bl1") {
		t.Error("the device is said to have all programs")
	}
	expectSets(t, "taken over", table, webSets)
	devices.broken["bl1"] = false
	mustPass(t, p)
	kernel.expect(t, "mended", 1)
	if !r.isWhole("bl1") {
		t.Error("the program is not attached")
	}
}
