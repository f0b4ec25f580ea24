package policies

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestFill(t *testing.T) {
	namespaces, addresses, names, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, o := range Fill() {
		switch o := o.(type) {
		case *corev1.Namespace:
			namespaces[o.Name] = true
		case *corev1.Pod:
			addresses[o.Status.PodIP] = true
			nodes[o.Spec.NodeName]++
			if a := netip.MustParseAddr(o.Status.PodIP); !testbed.PodNetworkIPv4.Contains(a) || !namespaces[o.Namespace] {
				t.Errorf("%s has %s", o.Name, a)
			}
		case *networkingv1.NetworkPolicy:
			names[o.Namespace+"/"+o.Name] = true
			if len(o.Spec.PolicyTypes) == 0 || !namespaces[o.Namespace] {
				t.Errorf("%+v", o)
			}
		}
	}
	if len(addresses) != Many || len(names) != Many || nodes[LocalNode] != LocalOthers || len(nodes) != 1+otherNodes {
		t.Errorf("%d addresses, %d policies, nodes %v", len(addresses), len(names), nodes)
	}
}

// Policies of every namespace have something to do on LocalNode.
func TestOtherPoliciesSelectPodsOfTheLab(t *testing.T) {
	pods := AmongMany.Beside()
	if len(pods) != LocalOthers {
		t.Fatalf("%d pods", len(pods))
	}
	selecting, namespaces := 0, map[string]bool{}
	for _, o := range AmongMany.Others() {
		policy := o.(*networkingv1.NetworkPolicy)
		for _, pod := range pods {
			if len(pod.Addresses) > 0 || pod.Node != LocalNode {
				t.Fatalf("%+v", pod)
			}
			if pod.Namespace == policy.Namespace && pod.Labels["app"] == policy.Spec.PodSelector.MatchLabels["app"] {
				selecting++
				namespaces[pod.Namespace] = true
				break
			}
		}
	}
	if selecting != 400 || len(namespaces) != Many/perNamespace {
		t.Errorf("%d policies of %d namespaces select pods of the lab", selecting, len(namespaces))
	}
}

func TestBlocks(t *testing.T) {
	client, server := netip.MustParseAddr("10.77.1.2"), netip.MustParseAddr("10.77.2.77")
	all := blocks(MostBlocks, client, server)
	bits, deepest := map[int]int{}, map[netip.Addr]int{}
	for _, p := range all {
		if p != p.Masked() {
			t.Errorf("%s is no prefix", p)
		}
		bits[p.Bits()]++
		for _, a := range []netip.Addr{client, server} {
			if p.Contains(a) {
				deepest[a] = p.Bits()
			}
		}
	}
	// In order, any that hold another stand next to each other.
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i := 1; i < len(all); i++ {
		if all[i-1].Overlaps(all[i]) {
			t.Fatalf("%s and %s are one entry", all[i-1], all[i])
		}
	}
	if len(all) != MostBlocks || bits[32] != MostBlocks/2 || bits[24] == 0 || len(bits) != 1+7 {
		t.Errorf("%d blocks, lengths %v", len(all), bits)
	}
	if deepest[client] != narrow || deepest[server] != narrow {
		t.Errorf("what is measured is in blocks of %v bits", deepest)
	}
	entries := 0
	for _, o := range ManyBlocks.ForMeasured([]int{80}, client, server) {
		p := o.(*networkingv1.NetworkPolicy)
		if n := len(p.Spec.Ingress[0].From); n > blocksOfPolicy || n != len(p.Spec.Egress[0].To) {
			t.Errorf("%s has %d entries", p.Name, n)
		} else {
			entries += n
		}
	}
	one := OneBlock.ForMeasured([]int{80}, client, server)
	if entries != MostBlocks || len(one) != 1 || len(one[0].(*networkingv1.NetworkPolicy).Spec.Ingress[0].From) != 1 {
		t.Errorf("%d entries against %v", entries, one)
	}
}

func TestPresences(t *testing.T) {
	for presence, want := range map[Presence]struct{ before, others, measured int }{
		None: {1, 0, 0}, Elsewhere: {1, 10, 0}, Allowing: {1, 0, 4}, AmongMany: {1 + Many/perNamespace + Many - LocalOthers, Many, 4}, OneBlock: {1, 0, 1},
	} {
		before := presence.Before()
		if len(before) != want.before || len(presence.Others()) != want.others {
			t.Errorf("%d: %d objects, %d policies; want %+v", presence, len(before), len(presence.Others()), want)
		}
		if n := len(presence.ForMeasured([]int{1}, netip.IPv4Unspecified())); n != want.measured || presence.Selects() != (want.measured > 0) {
			t.Errorf("%d: %d policies for the measured pods, selected %v", presence, n, presence.Selects())
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
