package datapath

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/policy/evaluate/oracle"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// While tables take each other's place again and again, what both forbid is never allowed, not for a moment.
func TestPoliciesNeverMoreOpen(t *testing.T) {
	const rounds, changes = 20, 40
	r := testenv.Rand(t)
	o := newPolicyOracle(t, Config{EBPFRouting: true})
	compiler := policy.NewCompiler(oracle.Here)
	forbidden := 0
	for range rounds {
		one := oracle.Random(r)
		other := oracle.World{Snapshot: one.Snapshot}
		for range 3 {
			other = other.Change(r)
		}
		tables := [2]*policy.Tables{}
		for i, w := range []oracle.World{one, other} {
			tables[i], _ = compiler.Compile(w.Snapshot, w.Local())
		}
		var never []evaluate.Traffic
		for range 400 {
			traffic := one.Traffic(r)
			if isForbidden(one, traffic) && isForbidden(other, traffic) && !otherRulesAtBothEnds(tables, traffic) {
				never = append(never, traffic)
			}
		}
		forbidden += len(never)
		if len(never) == 0 {
			continue
		}
		var stop atomic.Bool
		var writer sync.WaitGroup
		writer.Go(func() {
			defer stop.Store(true)
			for i := range changes {
				if _, err := o.d.Policies.Sync(tables[i%2]); err != nil {
					t.Error(err)
					return
				}
			}
		})
		// The tables of the round before may be in force until the first change.
		if _, err := o.d.Policies.Sync(tables[0]); err != nil {
			t.Error(err)
		}
		for i := 0; !stop.Load(); i++ {
			traffic := never[i%len(never)]
			passed, err := o.passes(o.path(one, traffic, i%2 == 0))
			if err != nil {
				t.Error(err)
			}
			if passed {
				t.Errorf("passed while tables changed: %s\nbefore and after:\n%s\n%s", oracle.Describe(traffic), one.YAML(), other.YAML())
				break
			}
		}
		writer.Wait()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d connections that are never allowed", forbidden)
	if forbidden == 0 {
		t.Error("nothing is forbidden in two clusters that follow each other")
	}
}

// otherRulesAtBothEnds tells whether both ends are pods with rules before and after, and with others: which of them gets its new ones first
// is not said (Sync).
func otherRulesAtBothEnds(tables [2]*policy.Tables, t evaluate.Traffic) bool {
	others := func(before, after policy.Set) bool {
		rules := func(s policy.Set) bool { return s != policy.NotIsolated && s != policy.Closed }
		return rules(before) && rules(after) && before != after
	}
	from, to := t.Source.Address, t.Destination.Address
	return others(tables[0].Pods[from].Egress, tables[1].Pods[from].Egress) && others(tables[0].Pods[to].Ingress, tables[1].Pods[to].Ingress)
}

// isForbidden tells whether traffic is not allowed in a cluster. Whoever is not known there is not asked about.
func isForbidden(w oracle.World, t evaluate.Traffic) bool {
	allowed, _, err := oracle.Documentation(w, t)
	return err == nil && !allowed
}

// A pod that is added is closed at once, also while tables are written, and by these.
func TestCloseDoesNotWaitForSync(t *testing.T) {
	d := openPolicies(t, Config{})
	pod, added, other := addr("10.1.1.2"), addr("10.1.1.3"), addr("10.1.1.4")
	tables := &policy.Tables{Pods: map[netip.Addr]policy.Sets{pod: {Ingress: 100}}, Identities: map[netip.Addr]policy.Identity{other: policy.IdentityPod}}
	if _, err := d.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
	d.Policies.mu.Lock() // as a Sync does
	closing := make(chan error, 1)
	go func() { closing <- d.Policies.Close([]netip.Addr{added}) }()
	select {
	case err := <-closing:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Close waits for a Sync")
	}
	d.Policies.mu.Unlock()
	expect := func(step string, want bool) {
		t.Helper()
		var sets bpfPolicyPod
		err := d.objects.maps.PolicyPods.Lookup(addressOf(added), &sets)
		if got := err == nil && sets.Ingress == uint32(policy.Closed) && sets.Egress == uint32(policy.Closed); got != want {
			t.Errorf("%s: closed %t, want %t: %+v, %v", step, got, want, sets, err)
		}
		if d.Policies.Knows([]netip.Addr{added}) != want {
			t.Errorf("%s: known %t", step, !want)
		}
	}
	expect("closed", true)
	if _, err := d.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
	expect("after another Sync", true)
	if err := d.Policies.Release([]netip.Addr{added}); err != nil {
		t.Fatal(err)
	}
	expect("released", false)
	for _, a := range []netip.Addr{pod, other} {
		if !d.Policies.Knows([]netip.Addr{added, a}) {
			t.Errorf("%s is not known", a)
		}
	}
}

// What refers to something is written after it and deleted before it.
func TestPoliciesOrder(t *testing.T) {
	d := openPolicies(t, Config{})
	// A reader that follows all references finds none that leads to nothing, however often tables come and go. None of them comes
	// twice: a pod whose set is the same as before has had it all the time, however long the reader was not scheduled.
	pod := addr("10.1.1.2")
	peer := addr("10.1.2.2")
	tables := func(n uint32) *policy.Tables {
		set, identity, ports := policy.Set(100+n), policy.IdentityPod|policy.Identity(100+n), policy.Ports(100+n)
		return &policy.Tables{
			Pods:       map[netip.Addr]policy.Sets{pod: {Ingress: set}},
			Identities: map[netip.Addr]policy.Identity{peer: identity},
			Policies:   map[policy.Peer]policy.Ports{{Set: set, Identity: identity}: ports, {Set: set, Identity: policy.IdentityPod}: ports},
			Ports:      map[policy.PortPrefix]policy.Policy{{Ports: ports, Bits: 24, Protocol: uint8(cluster.TCP), Port: 80}: 1},
		}
	}
	if _, err := d.Policies.Sync(tables(0)); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		defer stop.Store(true)
		for n := range uint32(3000) {
			if _, err := d.Policies.Sync(tables(1 + n)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	for !stop.Load() {
		var before, after bpfPolicyPod
		var identity, ports, by uint32
		if err := d.objects.maps.PolicyPods.Lookup(addressOf(pod), &before); err != nil {
			t.Errorf("the pod is not policed for a moment: %v", err)
			return
		}
		err := d.objects.maps.Identities.Lookup(addressOf(peer), &identity)
		if err == nil {
			if err = d.objects.maps.Policies.Lookup(bpfPolicyKey{Set: before.Ingress, Identity: identity}, &ports); err != nil {
				err = d.objects.maps.Policies.Lookup(bpfPolicyKey{Set: before.Ingress, Identity: uint32(policy.IdentityPod)}, &ports)
			}
		}
		if err == nil {
			key := policyPortKeyOf(policy.PortPrefix{Ports: policy.Ports(ports), Bits: 24, Protocol: uint8(cluster.TCP), Port: 80})
			err = d.objects.maps.PolicyPorts.Lookup(key, &by)
		}
		// A reader that was overtaken may well miss what is deleted by then; the pod shows whether it was.
		if e := d.objects.maps.PolicyPods.Lookup(addressOf(pod), &after); err != nil && e == nil && before == after {
			t.Errorf("set %d leads to nothing: %v", before.Ingress, err)
			return
		}
	}
}
