//go:build kubernetes

package smoke

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hasTwoFamilies reports whether the cluster is dual-stack.
func hasTwoFamilies(t *testing.T) bool {
	var nodes corev1.NodeList
	mustGet(t, &nodes, "nodes")
	return len(nodes.Items[0].Spec.PodCIDRs) > 1
}

// policiesOfTwoFamilies: a pod selector matches all addresses of its pods, and an ipBlock only those of its family,
// for ingress and egress, on one node and across nodes.
func policiesOfTwoFamilies(t *testing.T) {
	c := useFixtures(t)
	b4, b6 := addressesOf(t, c.b)
	remote4, remote6 := addressesOf(t, c.remote)
	for _, test := range []struct {
		name   string
		policy *networkingv1.NetworkPolicy
		// wants is the expected reachability.
		wants []reach
	}{
		{"Selector", policyFor(c.b, from(selects(c.a))), []reach{
			{c.a, b4, true}, {c.a, b6, true}, {c.remote, b4, false}, {c.remote, b6, false},
		}},
		{"Block4", policyFor(c.b, from(blocks(alone(t, remote4)))), []reach{
			{c.a, b4, false}, {c.a, b6, false}, {c.remote, b4, true}, {c.remote, b6, false},
		}},
		{"Block6", policyFor(c.b, from(blocks(alone(t, remote6)))), []reach{
			{c.a, b4, false}, {c.a, b6, false}, {c.remote, b4, false}, {c.remote, b6, true},
		}},
		{"All6", policyFor(c.b, from(blocks("::/0"))), []reach{
			{c.a, b4, false}, {c.a, b6, true}, {c.remote, b4, false}, {c.remote, b6, true},
		}},
		{"EgressAll4", policyFor(c.a, to(blocks("0.0.0.0/0"))), []reach{
			{c.a, b4, true}, {c.a, b6, false}, {c.a, remote4, true}, {c.a, remote6, false},
		}},
		{"EgressBlock6", policyFor(c.a, to(blocks(alone(t, remote6)))), []reach{
			{c.a, b4, false}, {c.a, b6, false}, {c.a, remote4, false}, {c.a, remote6, true},
		}},
		{"EgressSelector", policyFor(c.a, to(selects(c.remote))), []reach{
			{c.a, b4, false}, {c.a, b6, false}, {c.a, remote4, true}, {c.a, remote6, true},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, w := range test.wants {
				wantReach(t, reach{w.from, w.to, true})
			}
			applyForTest(t, test.policy)
			for _, w := range test.wants {
				wantReach(t, w)
			}
		})
	}
}

// reach is whether a pod can connect to an address.
type reach struct {
	from     testPod
	to       string
	answered bool
}

// wantReach waits until that holds: nodes get policies a moment later.
func wantReach(t *testing.T, w reach) {
	t.Helper()
	eventually(t, func() error {
		all, err := ask(w.from.runner, hostPort(w.to, httpPort), "-patience=1s")
		switch {
		case err == nil && !w.answered:
			return fmt.Errorf("%s connects to %s: %v", w.from.pod, w.to, all)
		case err != nil && w.answered:
			return fmt.Errorf("%s asks %s: %w", w.from.pod, w.to, err)
		}
		return nil
	})
}

// addressesOf are the addresses of a pod of a dual-stack cluster.
func addressesOf(t *testing.T, a testPod) (ipv4, ipv6 string) {
	t.Helper()
	var p corev1.Pod
	mustGet(t, &p, "pod", a.pod)
	if len(p.Status.PodIPs) != 2 {
		t.Fatalf("pod %s has the addresses %v, want one of each family", a.pod, p.Status.PodIPs)
	}
	return p.Status.PodIPs[0].IP, p.Status.PodIPs[1].IP
}

func selects(a testPod) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": a.pod}}}
}

func blocks(cidr string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}
}

// from and to make the spec of a policy that allows only this peer.
func from(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}},
	}
}

func to(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
	return networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{peer}}},
	}
}

// policyFor is a policy that selects one pod.
func policyFor(a testPod, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"name": a.pod}}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "families", Namespace: namespace},
		Spec:       spec,
	}
}
