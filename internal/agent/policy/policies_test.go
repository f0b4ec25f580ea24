package policy

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	dppolicy "github.com/beeline-cni/beeline/internal/datapath/policy"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

var closedSets = policy.Sets{Ingress: policy.DenyAll, Egress: policy.DenyAll}

// fakePolicies is a fake of datapath.Policies.
type fakePolicies struct {
	mu         sync.Mutex
	wanted     map[netip.Addr]policy.Sets
	identities map[netip.Addr]policy.Identity
	held       map[netip.Addr]bool
	syncs      int
	fail       error
	// during is called in each Sync before anything is written.
	during func()
}

func (f *fakePolicies) Sync(t *policy.Tables) (int, error) {
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	if f.fail != nil && !ofSets(f.fail) {
		return 0, f.fail
	}
	f.wanted, f.identities = maps.Clone(t.Pods), t.Identities
	return 1, f.fail
}

func (f *fakePolicies) Close(addresses []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range addresses {
		f.held[a] = true
	}
	return nil
}

func (f *fakePolicies) Release(addresses []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range addresses {
		delete(f.held, a)
	}
	return nil
}

func (f *fakePolicies) HasAny(addresses []netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		_, governed := f.wanted[a]
		_, known := f.identities[a]
		return governed || known
	})
}

// of gives the sets of an address.
func (f *fakePolicies) of(a netip.Addr) policy.Sets {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[a] {
		return closedSets
	}
	return f.wanted[a]
}

var (
	webAddress = netip.MustParseAddr("10.1.1.2")
	ownAddress = netip.MustParseAddr("10.0.0.1")
	webLocal   = policy.LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "web"}, UID: "u1", Addresses: []netip.Addr{webAddress}}
	webSets    = policy.Sets{Ingress: 7}
)

// newFakePolicies gives Policies that compile to the set 7 for each pod whose namespace has one, and their table.
func newFakePolicies() (*fakePolicies, *Policies) {
	table := &fakePolicies{held: map[netip.Addr]bool{}}
	compile := func(s *cluster.Snapshot, local policy.Local) (*policy.Tables, []policy.Problem) {
		t := &policy.Tables{
			Pods: map[netip.Addr]policy.Sets{}, Identities: map[netip.Addr]policy.Identity{}, Selected: map[cluster.Key][]cluster.Key{},
		}
		for _, pod := range local.Pods {
			t.Identities[pod.Addresses[0]] = policy.IdentityPod
			for _, p := range s.NetworkPolicies {
				if p.Namespace == pod.Pod.Namespace {
					t.Pods[pod.Addresses[0]] = webSets
					t.Selected[pod.Pod] = append(t.Selected[pod.Pod], p.Key())
				}
			}
		}
		return t, nil
	}
	p := New(Options{
		Config: Defaults(), Changed: func() {}, Reconcile: func() {}, Beat: &loop.Beat{},
		FailClosed: func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing { return nil },
	}, table, slog.New(slog.DiscardHandler))
	p.compile, p.postponed = compile, func() time.Time { return time.Time{} }
	p.UpdateNode([]netip.Addr{ownAddress})
	return table, p
}

// policySnapshot has a policy for ingress in each of the namespaces.
func policySnapshot(namespaces ...string) *cluster.Snapshot {
	s := &cluster.Snapshot{Since: time.Now(), Pods: cluster.ListOf(&cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID("u1")})}
	for _, namespace := range namespaces {
		s.NetworkPolicies = append(s.NetworkPolicies, &cluster.NetworkPolicy{Namespace: namespace, Name: "p", UID: "of-" + namespace, IsolatesIngress: true})
	}
	return s
}

func mustPass(t *testing.T, p *Policies) {
	t.Helper()
	if err := p.Pass(); err != nil {
		t.Fatal(err)
	}
}

func expectSets(t *testing.T, step string, table *fakePolicies, want policy.Sets) {
	t.Helper()
	if got := table.of(webAddress); got != want {
		t.Errorf("%s: sets %+v, want %+v", step, got, want)
	}
}

// The policies of an earlier agent stay active until all inputs of policies are synced; new pods are isolated.
func TestPoliciesKeepWhatIsNotKnown(t *testing.T) {
	for name, unknown := range map[string]*cluster.Snapshot{
		"nothing":                {Unknown: cluster.AllKinds},
		"pods":                   {Unknown: cluster.Kinds{cluster.KindPod}},
		"namespaces":             {Unknown: cluster.Kinds{cluster.KindNamespace}},
		"a policy's manifest":    {Partial: cluster.Kinds{cluster.KindNetworkPolicy}},
		"a pod's manifest":       {Partial: cluster.Kinds{cluster.KindPod}},
		"a namespace's manifest": {Partial: cluster.Kinds{cluster.KindNamespace}},
	} {
		table, p := newFakePolicies()
		filled := 0
		p.options.Reconcile = func() { filled++ }
		p.Update(unknown)
		if ingress, egress := p.isolates("shop"); !ingress || !egress {
			t.Errorf("%s: unsynced policies do not isolate", name)
		}
		number, err := p.close([]policy.LocalPod{webLocal}, webLocal.Addresses)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.PassAt(number); err != nil || table.syncs != 0 || p.current().filled {
			t.Errorf("%s: %d writes, error %v", name, table.syncs, err)
		}
		expectSets(t, name, table, closedSets)
		p.Update(policySnapshot("shop"))
		mustPass(t, p)
		expectSets(t, name+", later", table, webSets)
		p.UpdatePods(nil)
		mustPass(t, p)
		if !p.current().filled || filled != 1 {
			t.Errorf("%s: filled %t, reported %d times", name, p.current().filled, filled)
		}
	}
}

// The node reaches pods that are isolated because policies are not synced, also without an earlier agent. The tables
// of an earlier agent are not touched.
func TestNodeIsAdmittedBeforePoliciesAreKnown(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		table, p := newFakePolicies()
		p.options.Fresh = fresh
		p.Update(&cluster.Snapshot{Unknown: cluster.AllKinds})
		mustPass(t, p)
		_, admitted := table.identities[ownAddress]
		if admitted != fresh || table.syncs > 0 != fresh || p.current().filled {
			t.Errorf("table fresh %t: admitted %t, %d writes", fresh, admitted, table.syncs)
		}
	}
}

// Only policies of a pod's namespace can isolate it, in their directions.
func TestIsolates(t *testing.T) {
	_, p := newFakePolicies()
	s := policySnapshot("a", "shop")
	s.NetworkPolicies = append(s.NetworkPolicies, &cluster.NetworkPolicy{Namespace: "z", Name: "p", IsolatesEgress: true})
	p.Update(s)
	for namespace, want := range map[string][2]bool{"a": {true, false}, "b": {false, false}, "shop": {true, false}, "z": {false, true}, "zz": {false, false}} {
		if ingress, egress := p.isolates(namespace); [2]bool{ingress, egress} != want {
			t.Errorf("namespace %s: %t %t, want %v", namespace, ingress, egress, want)
		}
	}
}

// A pod stays isolated while tables are written that do not include it, and is released with tables that do. An
// address that moves to another pod meanwhile belongs to the new one, and stays isolated.
func TestPodIsIsolatedUntilTablesHaveIt(t *testing.T) {
	table, p := newFakePolicies()
	p.Update(policySnapshot("shop"))
	var number uint64
	add := func(pods ...policy.LocalPod) {
		var err error
		if number, err = p.close(pods, webLocal.Addresses); err != nil {
			t.Fatal(err)
		}
	}
	table.during = func() { table.during = nil; add(webLocal) }
	mustPass(t, p)
	expectSets(t, "added during a pass", table, closedSets)

	another := webLocal
	another.UID = "u2"
	table.during = func() { table.during = nil; add(another) }
	mustPass(t, p)
	expectSets(t, "another one with the address", table, closedSets)

	if err := p.PassAt(number); err != nil {
		t.Fatal(err)
	}
	expectSets(t, "known", table, webSets)
	syncs := table.syncs
	if err := p.PassAt(number); err != nil || table.syncs != syncs {
		t.Errorf("%d writes for a pod that is known, error %v", table.syncs-syncs, err)
	}
	add(webLocal)
	p.UpdatePods(nil) // it is gone before a pass has included it
	mustPass(t, p)
	expectSets(t, "gone", table, policy.Sets{})
}

// A failed write is retried without compiling again, and isolates its pods until then.
func TestPoliciesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, p := newFakePolicies()
		compiled := 0
		compile := p.compile
		p.compile = func(s *cluster.Snapshot, l policy.Local) (*policy.Tables, []policy.Problem) {
			compiled++
			return compile(s, l)
		}
		table.fail = errors.New("no memory")
		p.Update(policySnapshot("shop"))
		number, err := p.close([]policy.LocalPod{webLocal}, webLocal.Addresses)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.PassAt(number); err == nil {
			t.Error("no error")
		}
		expectSets(t, "not written", table, closedSets)
		if o := p.current(); o.filled || !slices.Contains(o.all(), "no memory") || o.states[cluster.Key{Namespace: "shop", Name: "p"}].state != agentapi.PolicyPending {
			t.Errorf("outcome %+v", o)
		}
		go func() { _ = p.Run(t.Context()) }()
		time.Sleep(2*policyRetry + policyRetry/2)
		synctest.Wait()
		table.mu.Lock()
		syncs := table.syncs
		table.fail = nil
		table.mu.Unlock()
		if syncs < 3 || compiled != 1 {
			t.Errorf("%d attempts, compiled %d times", syncs, compiled)
		}
		time.Sleep(policyRetry)
		synctest.Wait()
		expectSets(t, "written", table, webSets)
		if o := p.current(); !o.filled || len(o.all()) > 0 || o.states[cluster.Key{Namespace: "shop", Name: "p"}].state != agentapi.PolicyActive {
			t.Errorf("outcome %+v", o)
		}
		syncs = table.syncs
		time.Sleep(3 * policyRetry)
		synctest.Wait()
		if table.syncs != syncs {
			t.Errorf("%d writes without a change", table.syncs-syncs)
		}
	})
}

// What the compiler postponed is compiled when it is due, once, without any change.
func TestPostponedPoliciesAreCompiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, p := newFakePolicies()
		compile, compiled, due := p.compile, 0, time.Now().Add(20*policyRetry)
		p.compile = func(s *cluster.Snapshot, l policy.Local) (*policy.Tables, []policy.Problem) {
			if compiled++; time.Now().Before(due) {
				return &policy.Tables{Pods: map[netip.Addr]policy.Sets{webAddress: closedSets}}, nil
			}
			return compile(s, l)
		}
		p.postponed = func() time.Time {
			if time.Now().Before(due) {
				return due
			}
			return time.Time{}
		}
		p.UpdatePods([]policy.LocalPod{webLocal})
		p.Update(policySnapshot("shop"))
		go func() { _ = p.Run(t.Context()) }()
		time.Sleep(19 * policyRetry)
		synctest.Wait()
		expectSets(t, "before it is due", table, closedSets)
		time.Sleep(10 * policyRetry)
		synctest.Wait()
		expectSets(t, "when it is due", table, webSets)
		if compiled != 2 {
			t.Errorf("compiled %d times, want 2", compiled)
		}
	})
}

// A policy that does not fit is named with its pods, and everything else is active.
func TestPolicyThatDoesNotFit(t *testing.T) {
	fake, p := newFakePolicies()
	fake.fail = &dppolicy.SyncError{Sets: []policy.Set{webSets.Ingress}, Pods: webLocal.Addresses, Err: &table.FullError{Map: "policies", Size: 2, Flag: "--policies-max"}}
	other := policy.LocalPod{Pod: cluster.Key{Namespace: "other", Name: "x"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.3")}}
	p.Update(policySnapshot("other", "shop"))
	p.UpdatePods([]policy.LocalPod{other, webLocal})
	if err := p.Pass(); err == nil {
		t.Error("no error")
	}
	o := p.current()
	if len(o.problems) != 1 || o.problems[0].Policy != (cluster.Key{Namespace: "shop", Name: "p"}) || o.problems[0].UID != "of-shop" ||
		!slices.Equal(o.problems[0].Pods, []cluster.Key{webLocal.Pod}) || !strings.Contains(o.problems[0].Text, "--policies-max") {
		t.Errorf("problems %+v", o.problems)
	}
	if len(o.all()) != 1 || !o.filled {
		t.Errorf("problems for people %q, filled %t", o.all(), o.filled)
	}
	for namespace, want := range map[string]string{"shop": agentapi.PolicyClosed, "other": agentapi.PolicyActive} {
		if got := o.states[cluster.Key{Namespace: namespace, Name: "p"}].state; got != want {
			t.Errorf("policy of %s is %q, want %q", namespace, got, want)
		}
	}
	if why := o.closed[closedPod{webLocal.Pod, true}]; !strings.Contains(why, "full") || len(o.closed) != 1 {
		t.Errorf("closed: %v", o.closed)
	}
}

// A snapshot without changes for policies causes no pass, but the newest one answers questions.
func TestOnlyWhatPoliciesDependOnIsNew(t *testing.T) {
	_, p := newFakePolicies()
	first := policySnapshot("shop")
	p.Update(first)
	mustPass(t, p)
	<-p.wake
	second := *first
	second.Services = []*cluster.Service{{Namespace: "shop", Name: "web"}}
	p.Update(&second)
	p.UpdatePods(nil)
	p.UpdateNode([]netip.Addr{ownAddress})
	if len(p.wake) > 0 {
		t.Error("a pass is due for a Service")
	}
	if newest, _ := p.newest(); newest != &second {
		t.Error("questions are answered by an old snapshot")
	}
	p.UpdatePods([]policy.LocalPod{webLocal})
	if len(p.wake) == 0 {
		t.Error("no pass is due for a pod")
	}
}

// The time of a state is kept, and starts anew when the policy changes.
func TestPolicyStates(t *testing.T) {
	begin := time.Now()
	s := policySnapshot("a", "b")
	states := states{}.after(outcome{snapshot: s}, begin)
	changed := *s
	changed.NetworkPolicies = []*cluster.NetworkPolicy{s.NetworkPolicies[0], {Namespace: "b", Name: "p", Invalid: "nonsense"}}
	states = states.after(outcome{snapshot: &changed}, begin.Add(time.Hour))
	if a := states[cluster.Key{Namespace: "a", Name: "p"}]; a.state != agentapi.PolicyActive || !a.since.Equal(begin) {
		t.Errorf("policy a is %+v", a)
	}
	if b := states[cluster.Key{Namespace: "b", Name: "p"}]; b.state != agentapi.PolicyClosed || b.reason != "nonsense" || !b.since.Equal(begin.Add(time.Hour)) {
		t.Errorf("policy b is %+v", b)
	}
}
