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

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/policy"
)

// fakeClosing is what the kernel has of a closer's.
type fakeClosing struct {
	closed device.Closed
	syncs  int
	fail   error
}

// newFakeClosing gives a closer of an agent that has taken over the pods of an earlier one.
func newFakeClosing() (*fakeClosing, *closer) {
	f := &fakeClosing{}
	c := &closer{log: slog.New(slog.DiscardHandler), sync: func(closed device.Closed, keep bool) (changed int, err error) {
		f.syncs++
		if f.fail != nil {
			return 0, f.fail
		}
		if keep {
			closed.To, closed.From = slices.Concat(closed.To, f.closed.To), slices.Concat(closed.From, f.closed.From)
		}
		f.closed = closed
		return 1, nil
	}}
	c.takeOver()
	return f, c
}

func (f *fakeClosing) expect(t *testing.T, step string, syncs int, want device.Closed) {
	t.Helper()
	if diff := cmp.Diff(want, f.closed, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("%s: closed (-want +got):\n%s", step, diff)
	}
	if f.syncs != syncs {
		t.Errorf("%s: written %d times, want %d", step, f.syncs, syncs)
	}
	f.syncs = 0
}

// closedWeb is what is closed of the pod of webAddress in these directions.
func closedWeb(ingress, egress bool) (c device.Closed) {
	if ingress {
		c.To = []netip.Addr{webAddress}
	}
	if egress {
		c.From = []string{"bl1"}
	}
	return c
}

// A pod without a program that judges its packets is closed for these before rules are in force, and named with its policies, as open if it
// cannot be closed; everything else is in force, and it is tried again.
func TestPodThatCannotBeGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		ingress, egress bool
		open            error
		state, reason   string
		texts           []string
		pods            int
	}{
		"closed": {true, false, nil, agentapi.PolicyClosed, reasonPolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what the host's stack forwards to it: no program"}, 1},
		"closed for what it sends": {false, true, nil, agentapi.PolicyClosed, reasonPolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what it sends to others than its node: no program"}, 1},
		"closed in both directions": {true, true, nil, agentapi.PolicyClosed, reasonPolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what the host's stack forwards to it: no program",
				"NetworkPolicy shop/p: pod shop/web is closed for what it sends to others than its node: no program"}, 1},
		"open": {true, false, errors.New("no rule"), agentapi.PolicyPending, reasonPolicyOpen,
			[]string{"NetworkPolicy shop/p: pod shop/web is open for what the host's stack sends to it: no program"}, 0},
		"open for what it sends": {false, true, errors.New("no rule"), agentapi.PolicyPending, reasonPolicyOpen,
			[]string{"NetworkPolicy shop/p: pod shop/web is open for what it sends: no program"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, p := newFakePolicies()
				kernel, closer := newFakeClosing()
				kernel.fail = c.open
				broken, again := true, 0
				p.guardedAgain = func() { again++ }
				p.guard = closer.guard(func(sets map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
					if table.syncs != 0 && broken {
						t.Error("guarded after rules were put into force")
					}
					if _, ok := sets[webAddress]; !ok || !broken {
						return nil
					}
					u := unguarded{device: "bl1"}
					if c.ingress {
						u.ingress = errors.New("no program")
					}
					if c.egress {
						u.egress = errors.New("no program")
					}
					return map[netip.Addr]unguarded{webAddress: u}
				})
				snapshot := policySnapshot("other", "shop")
				for _, n := range snapshot.NetworkPolicies {
					n.IsolatesIngress, n.IsolatesEgress = c.ingress, c.egress
				}
				p.deliver(snapshot)
				p.setPods([]policy.LocalPod{webLocal})
				mustPass(t, p)
				expectSets(t, "not guarded", table, webSets)
				if c.open == nil {
					kernel.expect(t, "not guarded", 1, closedWeb(c.ingress, c.egress))
				}
				state := func(namespace string) policyState {
					return p.current().states[cluster.Key{Namespace: namespace, Name: "p"}]
				}
				if s := state("shop"); s.state != c.state || !strings.Contains(s.reason, "no program") {
					t.Errorf("state %+v", s)
				}
				if s := state("other"); s.state != agentapi.PolicyInForce {
					t.Errorf("another policy: state %+v", s)
				}
				o := p.current()
				for _, text := range c.texts {
					if !o.filled || !slices.ContainsFunc(o.all(), func(problem string) bool { return strings.HasPrefix(problem, text) }) {
						t.Errorf("filled %t, problems %q, want %q", o.filled, o.all(), text)
					}
				}
				a := &Agent{policies: p, snapshot: o.snapshot}
				of, others := a.problemSources().policyWarnings()
				if len(of) != len(c.texts) || len(others) > 0 {
					t.Errorf("Events of policies %+v, of the node %q", of, others)
				}
				for _, w := range of {
					if w.reason != c.reason || w.UID != "of-shop" {
						t.Errorf("Event %+v", w)
					}
				}
				if s := a.policyStatus(); s.ClosedPods != c.pods || s.Closed != c.pods || s.Pending != 1-c.pods {
					t.Errorf("status %+v", s)
				}
				<-p.wake // of what was delivered
				broken, kernel.fail, kernel.syncs = false, nil, 0
				go func() { _ = p.run(t.Context()) }()
				time.Sleep(policyRetry + 1)
				synctest.Wait()
				if o := p.current(); len(o.all()) > 0 || state("shop").state != agentapi.PolicyInForce || again != 1 {
					t.Errorf("problems %q, state %+v, told %d times that pods are guarded again", o.all(), state("shop"), again)
				}
				kernel.expect(t, "guarded", 1, device.Closed{})
			})
		})
	}
}

// Pods are closed once, put back when somebody opens them, and left as an earlier agent had them until policies are known.
func TestCloser(t *testing.T) {
	kernel, c := newFakeClosing()
	other := device.Closed{To: []netip.Addr{netip.MustParseAddr("10.1.1.9")}, From: []string{"bl9"}}
	kernel.closed = other
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(c.renew(false))
	kernel.expect(t, "before policies are known", 0, other)
	must(c.set(closedWeb(true, true)))
	kernel.expect(t, "known", 1, closedWeb(true, true))
	must(c.set(closedWeb(true, true)))
	kernel.expect(t, "as before", 0, closedWeb(true, true))
	kernel.closed = device.Closed{}
	must(c.renew(false))
	kernel.expect(t, "opened by somebody else", 1, closedWeb(true, true))
	must(c.set(closedWeb(true, false)))
	kernel.expect(t, "one direction", 1, closedWeb(true, false))
	must(c.set(closedWeb(false, true)))
	kernel.expect(t, "the other one", 1, closedWeb(false, true))
	kernel.fail = errors.New("no memory")
	if err := c.set(device.Closed{}); !errors.Is(err, kernel.fail) {
		t.Errorf("error %v", err)
	}
	kernel.fail, kernel.syncs = nil, 0
	must(c.set(device.Closed{}))
	kernel.expect(t, "tried again", 1, device.Closed{})

	kernel, c = newFakeClosing()
	kernel.closed = other
	must(c.renew(true))
	kernel.expect(t, "without policies", 1, device.Closed{})
}

// An agent that takes over pods whose programs cannot be attached closes them, and goes on. What an earlier one has closed stays so until
// this one has tried.
func TestPodThatCannotBeGuardedIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct{ ingress, egress bool }{"ingress": {true, false}, "egress": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			devices, r := newFakeDevices()
			kernel, closer := newFakeClosing()
			closer.tookOver = false
			kernel.closed = closedWeb(c.ingress, c.egress)
			table, p := newFakePolicies()
			compile, sets := p.compile, policy.Sets{}
			if c.ingress {
				sets.Ingress = 7
			}
			if c.egress {
				sets.Egress = 7
			}
			p.compile = func(s *cluster.Snapshot, local policy.Local) (*policy.Tables, []policy.Problem) {
				tables, problems := compile(s, local)
				for a := range tables.Pods {
					tables.Pods[a] = sets
				}
				return tables, problems
			}
			p.guard = closer.guard(r.guard)
			p.deliver(policySnapshot("shop"))
			p.setPods([]policy.LocalPod{webLocal})
			mustPass(t, p)
			kernel.expect(t, "no device is known", 1, closedWeb(c.ingress, c.egress))
			devices.broken["bl1"], devices.silent["bl1"] = c.ingress, c.egress
			a := &Agent{
				policies: p, rest: r, closer: closer,
				endpoints: map[string]agentapi.Endpoint{"bl1": {HostDevice: "bl1", HostIfIndex: 7, Addresses: []netip.Addr{webAddress}}},
			}
			attach := func(name string, index int, put func(string, int) error) {
				if err := put(name, index); (err != nil) != c.egress {
					t.Errorf("error %v", err)
				}
			}
			a.attachPods(attach)
			kernel.expect(t, "taken over", 1, closedWeb(c.ingress, c.egress))
			if r.isWhole("bl1") {
				t.Error("the device is said to have all programs")
			}
			expectSets(t, "taken over", table, sets)
			devices.broken["bl1"], devices.silent["bl1"] = false, false
			mustPass(t, p)
			kernel.expect(t, "mended", 1, device.Closed{})
			if !r.isWhole("bl1") {
				t.Error("the program is not attached")
			}
		})
	}
}

// What an earlier agent has closed and this one does not is opened when its pods have been taken over.
func TestPodIsOpenedWhenTakenOver(t *testing.T) {
	kernel, c := newFakeClosing()
	c.tookOver = false
	kernel.closed = closedWeb(true, true)
	if err := errors.Join(c.set(device.Closed{}), c.renew(false)); err != nil {
		t.Fatal(err)
	}
	kernel.expect(t, "not taken over", 2, closedWeb(true, true))
	c.takeOver()
	if err := c.renew(false); err != nil {
		t.Fatal(err)
	}
	kernel.expect(t, "taken over", 1, device.Closed{})
}
