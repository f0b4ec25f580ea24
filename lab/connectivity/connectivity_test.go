package connectivity

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// There are checks of all kinds, in both directions, on one node and on two, with both outcomes.
func TestChecksCover(t *testing.T) {
	names := map[string]bool{NearNode: true, FarNode: true}
	for _, p := range Pods() {
		if names[p.Name] {
			t.Errorf("two pods have the name %s", p.Name)
		}
		names[p.Name] = true
	}
	counts, seen := map[any]int{}, map[result.Connection]bool{}
	for _, q := range Checks() {
		if !names[q.From] || !names[q.To] || q.From == q.To {
			t.Errorf("%+v", q)
		}
		if seen[q] {
			t.Errorf("twice: %+v", q)
		}
		seen[q] = true
		counts[[4]any{q.Direction, q.Rule, q.Path, q.Allowed}]++
		counts[[3]any{q.Direction, q.Protocol, q.Allowed}]++
	}
	for _, d := range []result.PolicyDirection{result.Ingress, result.Egress} {
		for _, by := range []string{"pod selector", "port", "block"} {
			for _, path := range []result.Path{result.SameNode, result.CrossNode} {
				for _, want := range []bool{allowed, denied} {
					if counts[[4]any{d, by, path, want}] == 0 {
						t.Errorf("%s by %s, %s: no check wants %v", d, by, path, want)
					}
				}
			}
		}
		for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			if counts[[3]any{d, string(p), allowed}] == 0 || counts[[3]any{d, string(p), denied}] == 0 {
				t.Errorf("%s over %s has one outcome only", d, p)
			}
		}
	}
}

// The policies select pods of this package and no others.
func TestObjectsSelectThePods(t *testing.T) {
	address := func(name string) netip.Addr {
		for i, p := range Pods() {
			if p.Name == name {
				return netip.AddrFrom4([4]byte{10, 77, byte(1 + p.Home), byte(2 + i)})
			}
		}
		return netip.MustParseAddr("192.168.77.2")
	}
	for _, o := range Objects(address) {
		policy, ok := o.(*networkingv1.NetworkPolicy)
		if !ok {
			continue
		}
		selected := 0
		for _, p := range Pods() {
			if p.Namespace == policy.Namespace && p.Labels["connectivity"] == policy.Spec.PodSelector.MatchLabels["connectivity"] {
				selected++
			}
		}
		if selected == 0 || len(policy.Spec.PodSelector.MatchLabels) != 1 {
			t.Errorf("%s selects %d of the pods by %v", policy.Name, selected, policy.Spec.PodSelector)
		}
	}
}

func TestAsk(t *testing.T) {
	here := testbed.Netns{}
	answering, silent := netip.MustParseAddr("127.0.7.1"), netip.MustParseAddr("127.0.7.2")
	end, err := Listen(t.Context(), here, answering)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for protocol, ports := range Ports {
		for address, want := range map[netip.Addr]bool{answering: true, silent: false} {
			began := time.Now()
			got, err := Connect(t.Context(), here, netip.AddrPortFrom(address, ports[0]), protocol, want)
			if got != want || err != nil {
				t.Errorf("%s of %s: connected %v, %v", address, protocol, got, err)
			}
			if took := time.Since(began); !want && took < refusedFor {
				t.Errorf("a missing reply counts after %v", took)
			}
		}
	}
	if _, err := Listen(t.Context(), here, answering); err == nil {
		t.Error("two servers listen at one address")
	}
}
