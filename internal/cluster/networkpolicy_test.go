package cluster

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An invalid NetworkPolicy isolates all pods that it may be about.
func TestWrongNetworkPolicyStandsForWhatItMayBeAbout(t *testing.T) {
	unreadable := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	readable := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for name, c := range map[string]struct {
		spec            networkingv1.NetworkPolicySpec
		ofAll           bool
		ingress, egress bool
	}{
		"selector": {networkingv1.NetworkPolicySpec{PodSelector: unreadable, PolicyTypes: []networkingv1.PolicyType{"Egress"}}, true, false, true},
		"types":    {networkingv1.NetworkPolicySpec{PodSelector: readable, PolicyTypes: []networkingv1.PolicyType{"Ingress", "Sideways"}}, false, true, true},
		"rule": {networkingv1.NetworkPolicySpec{PodSelector: readable, Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "everywhere"}}}},
			{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &readable}}},
		}}, false, true, false},
	} {
		reduced, err := Reduce(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: c.spec})
		p, ok := reduced.(*NetworkPolicy)
		if err == nil || !ok {
			t.Fatalf("%s: got %v and error %v, want a policy and an error", name, reduced, err)
		}
		if p.Invalid == "" || strings.Contains(p.Invalid, "a/"+name) || len(p.Ingress)+len(p.Egress) > 0 {
			t.Errorf("%s: %q with %d rules, want a reason and no rules", name, p.Invalid, len(p.Ingress)+len(p.Egress))
		}
		if ofAll := len(p.Pods.Requirements) == 0; ofAll != c.ofAll || p.IsolatesIngress != c.ingress || p.IsolatesEgress != c.egress {
			t.Errorf("%s: of the whole namespace %t, ingress %t, egress %t", name, ofAll, p.IsolatesIngress, p.IsolatesEgress)
		}
	}
}

const policyYAML = `
kind: NetworkPolicy
apiVersion: networking.k8s.io/v1
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
`

// An invalid NetworkPolicy of a manifest replaces the last valid one, whose rules might allow too much.
func TestWrongNetworkPolicyOfManifestIsDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		old, now        string
		wrong           string
		ofAll           bool
		ingress, egress bool
	}{
		"peer":              {"podSelector: {matchLabels: {app: client}}", "ipBlock: {cidr: everywhere}", "not a CIDR", false, true, false},
		"field of a rule":   {"from:", "form:", "unknown field", false, true, false},
		"field of the spec": {"  ingress:", "  ingres:", "unknown field", true, true, true},
		"type":              {"podSelector: {matchLabels: {app: web}}", "podSelector: 5", "want", true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.yaml")
			put(t, file, aYAML+"---"+policyYAML)
			r := run(t, dir, never)
			if s := r.expect("a"); len(s.NetworkPolicies) != 1 || s.NetworkPolicies[0].Invalid != "" || len(s.NetworkPolicies[0].Ingress) != 1 {
				t.Fatalf("got %+v", s.NetworkPolicies)
			}
			put(t, file, aYAML+"---"+strings.Replace(policyYAML, c.old, c.now, 1))
			s := r.expect("a")
			if len(s.NetworkPolicies) != 1 || len(s.Partial) > 0 {
				t.Fatalf("got %+v, partial %v", s.NetworkPolicies, s.Partial)
			}
			p := s.NetworkPolicies[0]
			if ofAll := len(p.Pods.Requirements) == 0; !strings.Contains(p.Invalid, c.wrong) || strings.Contains(p.Invalid, "shop/web") || ofAll != c.ofAll ||
				p.IsolatesIngress != c.ingress || p.IsolatesEgress != c.egress || len(p.Ingress) > 0 {
				t.Errorf("got %+v", p)
			}
			r.expectProblem("a.yaml:")
			put(t, file, aYAML+"---"+policyYAML)
			if s := r.expect("a"); s.NetworkPolicies[0].Invalid != "" {
				t.Errorf("got %+v", s.NetworkPolicies[0])
			}
		})
	}
}

// A NetworkPolicy of an unknown apiVersion isolates what it selects, or its namespace if that is unknown.
func TestNetworkPolicyOfUnknownVersionIsolates(t *testing.T) {
	policy := strings.TrimPrefix(policyYAML, "\n")
	version := func(now string) string { return strings.Replace(policy, "apiVersion: networking.k8s.io/v1\n", now, 1) }
	const v2 = "apiVersion: networking.k8s.io/v2\n"
	for name, c := range map[string]struct {
		data, want string
		ofAll      bool
		egress     bool
	}{
		"version":   {version(v2), `f.yaml:2: NetworkPolicy shop/web: apiVersion "networking.k8s.io/v2" is not known; known: networking.k8s.io/v1`, false, true},
		"group":     {version("apiVersion: extensions/v1beta1\n"), `f.yaml:2: NetworkPolicy shop/web: apiVersion "extensions/v1beta1" is not known`, false, true},
		"core":      {version("apiVersion: v1\n"), `f.yaml:2: NetworkPolicy shop/web: apiVersion "v1" is not known`, false, true},
		"missing":   {version(""), "f.yaml:1: NetworkPolicy shop/web: apiVersion is missing; known: networking.k8s.io/v1", false, true},
		"types":     {version(v2) + "  policyTypes: [Ingress]\n", `f.yaml:2: `, false, false},
		"new rules": {strings.Replace(version(v2), "from:", "sources:", 1), `f.yaml:2: `, false, true},
		"selector":  {strings.Replace(version(v2), "podSelector:", "subject:", 1), `f.yaml:2: `, true, true},
		"operator":  {strings.Replace(version(v2), "matchLabels: {app: web}", "matchExpressions: [{key: app, operator: Like}]", 1), `f.yaml:2: `, true, true},
		"list": {v2 + "kind: NetworkPolicyList\nitems:\n- metadata: {name: web, namespace: shop}\n  spec: {podSelector: {matchLabels: {app: web}}}\n",
			`f.yaml:1: NetworkPolicyList: apiVersion "networking.k8s.io/v2" is not known`, false, true},
	} {
		m, errs := parse("f.yaml", []byte(c.data))
		if len(errs) > 0 || len(m.objects) != 1 || len(m.complaints) == 0 || !strings.HasPrefix(m.complaints[0].Error(), c.want) {
			t.Errorf("%s: errors %v in %+v, want %s", name, errs, m, c.want)
			continue
		}
		p := m.objects[0].object.(*NetworkPolicy)
		if ofAll := len(p.Pods.Requirements) == 0; p.Key() != (Key{"shop", "web"}) || p.Invalid == "" || len(p.Ingress)+len(p.Egress) > 0 ||
			ofAll != c.ofAll || !p.IsolatesIngress || p.IsolatesEgress != c.egress {
			t.Errorf("%s: got %+v", name, p)
		}
	}
}

// An invalid file puts only those kinds in doubt that it mentions: a broken Service does not isolate pods.
func TestBrokenFileIsPartialOfWhatItMentions(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), aYAML)
	put(t, filepath.Join(dir, "b.yaml"), "kind: Service\nspec: [")
	r := run(t, dir, never)
	if s := r.expect("a"); len(s.Partial) != 1 || s.Partial[0] != KindService {
		t.Errorf("in doubt are %v, want Services", s.Partial)
	}
}

// The kubelet identifies a static pod by its own UID, not by that of the mirror pod.
func TestUIDOfStaticPod(t *testing.T) {
	pod, wrong := reducePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", UID: "of-the-object", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "of-the-pod"},
	}})
	if pod.UID != NewUID("of-the-pod") || len(wrong) > 0 {
		t.Errorf("UID %x, errors %v", pod.UID, wrong)
	}
}
