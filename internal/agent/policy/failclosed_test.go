package policy

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

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/policy"
)

// fakePods is the kernel of a failclosed.Pods: noIngress and noEgress say which programs no device can get.
type fakePods struct {
	noIngress, noEgress bool
	attached            int
	closed              route.Blackholes
	fail                error
}

func newFakePods() (*fakePods, *failclosed.Pods) {
	f := &fakePods{}
	return f, failclosed.New(failclosed.Kernel{Attach: f.attach, Exists: func(string, int) bool { return true }, SyncClosed: f.sync}, true, slog.New(slog.DiscardHandler))
}

func (f *fakePods) attach(string, int) error {
	f.attached++
	var e attach.PodError
	if f.noIngress {
		e.Ingress = errors.New("no program")
	}
	if f.noEgress {
		e.Egress = errors.New("no program")
	}
	if len(e.Unwrap()) > 0 {
		return &e
	}
	return nil
}

func (f *fakePods) sync(closed route.Blackholes, keep bool) (changed int, err error) {
	if f.fail != nil {
		return 0, f.fail
	}
	if keep {
		closed.To, closed.From = slices.Concat(closed.To, f.closed.To), slices.Concat(closed.From, f.closed.From)
	}
	f.closed = closed
	return 1, nil
}

func (f *fakePods) expect(t *testing.T, step string, ingress, egress bool) {
	t.Helper()
	var want route.Blackholes
	if ingress {
		want.To = []netip.Addr{webAddress}
	}
	if egress {
		want.From = []string{"bl1"}
	}
	if diff := cmp.Diff(want, f.closed, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("%s: closed (-want +got):\n%s", step, diff)
	}
}

// A pod that lacks a program is isolated before sets are active, and its policies are named, as not enforced if the
// pod cannot be isolated. All other policies are active. Attaching is retried.
func TestPodWithoutProgram(t *testing.T) {
	for name, c := range map[string]struct {
		ingress, egress bool
		open            error
		state           string
		texts           []string
		pods            int
	}{
		"closed": {true, false, nil, agentapi.PolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what the host's stack forwards to it: no program"}, 1},
		"closed for what it sends": {false, true, nil, agentapi.PolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what it sends to others than its node: no program"}, 1},
		"closed in both directions": {true, true, nil, agentapi.PolicyClosed,
			[]string{"NetworkPolicy shop/p: pod shop/web is closed for what the host's stack forwards to it: no program",
				"NetworkPolicy shop/p: pod shop/web is closed for what it sends to others than its node: no program"}, 1},
		"open": {true, false, errors.New("no rule"), agentapi.PolicyPending,
			[]string{"NetworkPolicy shop/p: pod shop/web is open for what the host's stack sends to it: no program"}, 0},
		"open for what it sends": {false, true, errors.New("no rule"), agentapi.PolicyPending,
			[]string{"NetworkPolicy shop/p: pod shop/web is open for what it sends: no program"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, p := newFakePolicies()
				kernel, pods := newFakePods()
				kernel.noIngress, kernel.noEgress, kernel.fail = c.ingress, c.egress, c.open
				if _, err := pods.Adopt(failclosed.Pod{Device: "bl1", Index: 7, Addresses: []netip.Addr{webAddress}}); err == nil {
					t.Fatal("the fake device has all programs")
				}
				pods.AdoptionDone()
				again := -1 // the first pass also reports
				p.options.Reconcile = func() { again++ }
				p.options.FailClosed = func(sets map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing {
					if table.syncs != 0 && (kernel.noIngress || kernel.noEgress) {
						t.Error("closed after sets were written")
					}
					return pods.Update(sets)
				}
				snapshot := policySnapshot("other", "shop")
				for _, n := range snapshot.NetworkPolicies {
					n.IsolatesIngress, n.IsolatesEgress = c.ingress, c.egress
				}
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
				p.Update(snapshot)
				p.UpdatePods([]policy.LocalPod{webLocal})
				mustPass(t, p)
				expectSets(t, "incomplete", table, sets)
				kernel.expect(t, "incomplete", c.ingress && c.open == nil, c.egress && c.open == nil)
				state := func(namespace string) state {
					return p.current().states[cluster.Key{Namespace: namespace, Name: "p"}]
				}
				if s := state("shop"); s.state != c.state || !strings.Contains(s.reason, "no program") {
					t.Errorf("state %+v", s)
				}
				if s := state("other"); s.state != agentapi.PolicyActive {
					t.Errorf("another policy: state %+v", s)
				}
				o := p.current()
				for _, text := range c.texts {
					if !o.filled || !slices.ContainsFunc(o.all(), func(problem string) bool { return strings.HasPrefix(problem, text) }) {
						t.Errorf("filled %t, problems %q, want %q", o.filled, o.all(), text)
					}
				}
				of, others := p.Warnings(false)
				if len(of) != len(c.texts) || len(others) > 0 {
					t.Errorf("Events of policies %+v, of the node %q", of, others)
				}
				for _, w := range of {
					if w.Open != (c.open != nil) || w.UID != "of-shop" {
						t.Errorf("Event %+v", w)
					}
				}
				if s := p.Status(); s.ClosedPods != c.pods || s.Closed != c.pods || s.Pending != 1-c.pods {
					t.Errorf("status %+v", s)
				}
				<-p.wake // of what was delivered
				kernel.noIngress, kernel.noEgress, kernel.fail = false, false, nil
				go func() { _ = p.Run(t.Context()) }()
				time.Sleep(policyRetry + 1)
				synctest.Wait()
				if o := p.current(); len(o.all()) > 0 || state("shop").state != agentapi.PolicyActive || again != 1 {
					t.Errorf("problems %q, state %+v, reported %d times that pods are complete again", o.all(), state("shop"), again)
				}
				kernel.expect(t, "complete", false, false)
			})
		})
	}
}

// An agent that adopts pods whose programs cannot be attached isolates them and continues. What an earlier one
// isolated stays isolated until this one has tried.
func TestPodWithoutProgramIsAdopted(t *testing.T) {
	for name, c := range map[string]struct{ ingress, egress bool }{"ingress": {true, false}, "egress": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			kernel, pods := newFakePods()
			table, p := newFakePolicies()
			compile, sets := p.compile, policy.Sets{}
			if c.ingress {
				sets.Ingress, kernel.closed.To = 7, []netip.Addr{webAddress}
			}
			if c.egress {
				sets.Egress, kernel.closed.From = 7, []string{"bl1"}
			}
			p.compile = func(s *cluster.Snapshot, local policy.Local) (*policy.Tables, []policy.Problem) {
				tables, problems := compile(s, local)
				for a := range tables.Pods {
					tables.Pods[a] = sets
				}
				return tables, problems
			}
			p.options.FailClosed = pods.Update
			p.Update(policySnapshot("shop"))
			p.UpdatePods([]policy.LocalPod{webLocal})
			mustPass(t, p)
			kernel.expect(t, "no device is known", c.ingress, c.egress)
			kernel.noIngress, kernel.noEgress = c.ingress, c.egress
			lacks, err := pods.Adopt(failclosed.Pod{Device: "bl1", Index: 7, Addresses: []netip.Addr{webAddress}})
			if !lacks || err == nil {
				t.Errorf("the device is complete: lacks %t, error %v", lacks, err)
			}
			pods.AdoptionDone()
			mustPass(t, p)
			kernel.expect(t, "adopted", c.ingress, c.egress)
			expectSets(t, "adopted", table, sets)
			kernel.noIngress, kernel.noEgress = false, false
			before := kernel.attached
			mustPass(t, p)
			kernel.expect(t, "mended", false, false)
			if kernel.attached == before {
				t.Error("the program is not attached")
			}
		})
	}
}
