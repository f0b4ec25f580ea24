package policies

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/topology"
)

func TestFill(t *testing.T) {
	objects, err := Fill(Many, Many)
	if err != nil {
		t.Fatal(err)
	}
	namespaces, addresses, names, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			namespaces[o.Name] = true
		case *corev1.Pod:
			addresses[o.Status.PodIP] = true
			nodes[o.Spec.NodeName]++
			if a := netip.MustParseAddr(o.Status.PodIP); !topology.PodNetworkIPv4.Contains(a) || !namespaces[o.Namespace] {
				t.Errorf("%s has %s", o.Name, a)
			}
		case *networkingv1.NetworkPolicy:
			names[o.Namespace+"/"+o.Name] = true
			if len(o.Spec.PolicyTypes) == 0 || !namespaces[o.Namespace] {
				t.Errorf("%+v", o)
			}
		}
	}
	if len(addresses) != Many || len(names) != Many || nodes["n1"] < 20 || len(nodes) != otherNodes {
		t.Errorf("%d addresses, %d policies, nodes %v", len(addresses), len(names), nodes)
	}
	if _, err := Fill(1, mostOthers+1); err == nil {
		t.Error("there are addresses for more pods than a range has")
	}
}

func TestBlocks(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	bits := map[int]int{}
	for i, p := range blocks(MostBlocks) {
		if seen[p] || p != p.Masked() {
			t.Fatalf("%s is not a prefix of its own", p)
		}
		seen[p] = true
		bits[p.Bits()]++
		if holds := p.Overlaps(topology.PodNetworkIPv4); holds != (i == 0) {
			t.Errorf("%s holds pods: %v", p, holds)
		}
	}
	if len(seen) != MostBlocks || bits[32] < MostBlocks/2-2 || len(bits) != 1+1+7 {
		t.Errorf("%d prefixes, lengths %v", len(seen), bits)
	}
	entries := 0
	for _, p := range ManyBlocks.ForMeasured([]int{80}, netip.IPv4Unspecified()) {
		if n := len(p.Spec.Ingress[0].From); n > blocksOfPolicy || n != len(p.Spec.Egress[0].To) {
			t.Errorf("%s has %d entries", p.Name, n)
		} else {
			entries += n
		}
	}
	if entries != MostBlocks || len(OneBlock.ForMeasured([]int{80}, netip.IPv4Unspecified())) != 1 {
		t.Errorf("%d entries", entries)
	}
}

func TestPresences(t *testing.T) {
	for presence, want := range map[Presence]struct{ before, measured int }{
		None: {1, 0}, Elsewhere: {11, 0}, Allowing: {1, 5}, AmongMany: {1 + Many/perNamespace + 2*Many, 5}, OneBlock: {1, 1},
	} {
		before, err := presence.Before()
		if err != nil || len(before) != want.before {
			t.Errorf("%d: %d objects, %v; want %d", presence, len(before), err, want.before)
		}
		if n := len(presence.ForMeasured([]int{1}, netip.IPv4Unspecified())); n != want.measured || presence.Governed() != (want.measured > 0) {
			t.Errorf("%d: %d policies for the measured pods, governed %v", presence, n, presence.Governed())
		}
	}
}

func TestTCPPorts(t *testing.T) {
	given := []int{20002, 80, 20001, 7000}
	var got []int32
	for _, p := range TCPPorts(given...) {
		got = append(got, p.Port.IntVal)
		if p.EndPort != nil {
			got = append(got, -*p.EndPort)
		}
	}
	if diff := cmp.Diff([]int32{80, 7000, 20001, -20002}, got); diff != "" {
		t.Error(diff)
	}
	if given[0] != 20002 {
		t.Error("the caller's ports are another's now")
	}
}

func TestState(t *testing.T) {
	s := NewState()
	pod := Pod{Namespace: "a", Name: "b", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Web: 80}.Object()
	if err := s.Put(Namespace("a", nil), pod, Policy("a", "p", nil, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if len(s.Pods()) != 1 || len(s.Policies()) != 1 || s.Namespace("a") == nil || s.Namespace("b") != nil {
		t.Errorf("%+v", s)
	}
	s.Delete(pod)
	if len(s.Pods()) != 0 {
		t.Error("a deleted pod is there")
	}
	if err := s.Put(&corev1.Node{}); err == nil {
		t.Error("a node is an object of policies")
	}
}
