package policy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A new pod is isolated at once, also while a Sync runs, which keeps it isolated.
func TestCloseDoesNotWaitForSync(t *testing.T) {
	d := openTable(t, config.Datapath{})
	pod, added, other := fixtures.Addr("10.1.1.2"), fixtures.Addr("10.1.1.3"), fixtures.Addr("10.1.1.4")
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
		var sets bpf.PolicyPod
		err := d.Objects.Maps.PolicyPods.Lookup(bpf.AddressOf(added), &sets)
		if got := err == nil && sets.Ingress == uint32(policy.DenyAll) && sets.Egress == uint32(policy.DenyAll); got != want {
			t.Errorf("%s: closed %t, want %t: %+v, %v", step, got, want, sets, err)
		}
		if d.Policies.HasAny([]netip.Addr{added}) != want {
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
		if !d.Policies.HasAny([]netip.Addr{added, a}) {
			t.Errorf("%s is not known", a)
		}
	}
}

// An entry that refers to another one is written after it and deleted before it.
func TestPoliciesOrder(t *testing.T) {
	d := openTable(t, config.Datapath{})
	// A reader that follows all references finds every entry, however often tables change. No set number is used
	// twice: if a pod has the same set as before, it had it all the time, however long the reader was not scheduled.
	pod := fixtures.Addr("10.1.1.2")
	peer := fixtures.Addr("10.1.2.2")
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
		var before, after bpf.PolicyPod
		var identity, ports, by uint32
		if err := d.Objects.Maps.PolicyPods.Lookup(bpf.AddressOf(pod), &before); err != nil {
			t.Errorf("the pod is not in the map for a moment: %v", err)
			return
		}
		err := d.Objects.Maps.Identities.Lookup(bpf.AddressOf(peer), &identity)
		if err == nil {
			if err = d.Objects.Maps.Policies.Lookup(bpf.PolicyKey{Set: before.Ingress, Identity: identity}, &ports); err != nil {
				err = d.Objects.Maps.Policies.Lookup(bpf.PolicyKey{Set: before.Ingress, Identity: uint32(policy.IdentityPod)}, &ports)
			}
		}
		if err == nil {
			key := policyPortKeyOf(policy.PortPrefix{Ports: policy.Ports(ports), Bits: 24, Protocol: uint8(cluster.TCP), Port: 80})
			err = d.Objects.Maps.PolicyPorts.Lookup(key, &by)
		}
		// A reader that was overtaken may miss deleted entries; the pod's entry shows whether it was.
		if e := d.Objects.Maps.PolicyPods.Lookup(bpf.AddressOf(pod), &after); err != nil && e == nil && before == after {
			t.Errorf("set %d has no entries: %v", before.Ingress, err)
			return
		}
	}
}
