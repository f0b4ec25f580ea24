package oracle

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// YAML formats the Cluster as manifests.
func (w Cluster) YAML() string {
	var out strings.Builder
	document := func(object any) {
		text, err := yaml.Marshal(object)
		if err != nil {
			text = []byte("# " + err.Error() + "\n") // plain data always marshals
		}
		out.WriteString("---\n")
		for line := range strings.Lines(string(text)) {
			if trimmed := strings.TrimSpace(line); trimmed != "creationTimestamp: null" && trimmed != "status: {}" && trimmed != "resources: {}" && trimmed != "spec: {}" {
				out.WriteString(line)
			}
		}
	}
	for _, n := range w.Namespaces {
		document(&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: maps.Collect(n.Labels.All())},
		})
	}
	for p := range w.Pods.All() {
		document(podObject(p))
	}
	for _, p := range w.NetworkPolicies {
		document(policyObject(p))
	}
	return out.String()
}

func podObject(p *cluster.Pod) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: maps.Collect(p.Labels.All())},
		Spec:       corev1.PodSpec{NodeName: p.Node, HostNetwork: p.HostNetwork},
	}
	if p.Ended {
		pod.Status.Phase = corev1.PodSucceeded
	}
	for _, a := range p.Addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	container := corev1.Container{Name: "main"}
	for _, port := range p.Ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			Name: port.Name, Protocol: corev1.Protocol(port.Protocol.String()), ContainerPort: int32(port.Number),
		})
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

func policyObject(p *cluster.NetworkPolicy) *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: selectorObject(p.Pods), PolicyTypes: []networkingv1.PolicyType{}},
	}
	if p.Invalid != "" {
		policy.Annotations = map[string]string{"wrong": p.Invalid}
	}
	if p.IsolatesIngress {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if p.IsolatesEgress {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	for _, r := range p.Ingress {
		policy.Spec.Ingress = append(policy.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peerObjects(r.Peers), Ports: portObjects(r.Ports)})
	}
	for _, r := range p.Egress {
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peerObjects(r.Peers), Ports: portObjects(r.Ports)})
	}
	return policy
}

func peerObjects(peers []cluster.PolicyPeer) (objects []networkingv1.NetworkPolicyPeer) {
	for _, p := range peers {
		var object networkingv1.NetworkPolicyPeer
		if p.Block.IsValid() {
			object.IPBlock = &networkingv1.IPBlock{CIDR: p.Block.String()}
			for _, except := range p.Except {
				object.IPBlock.Except = append(object.IPBlock.Except, except.String())
			}
		}
		if p.Namespaces != nil {
			s := selectorObject(*p.Namespaces)
			object.NamespaceSelector = &s
		}
		if p.Pods != nil {
			s := selectorObject(*p.Pods)
			object.PodSelector = &s
		}
		objects = append(objects, object)
	}
	return objects
}

func portObjects(ports []cluster.PolicyPort) (objects []networkingv1.NetworkPolicyPort) {
	for _, p := range ports {
		protocol := corev1.Protocol(p.Protocol.String())
		object := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		if p.Name != "" || p.First != 0 {
			number := intstr.FromInt32(int32(p.First))
			if p.Name != "" {
				number = intstr.FromString(p.Name)
			}
			object.Port = &number
		}
		if p.Last != p.First {
			last := int32(p.Last)
			object.EndPort = &last
		}
		objects = append(objects, object)
	}
	return objects
}

func selectorObject(s cluster.Selector) (object metav1.LabelSelector) {
	for _, r := range s.Requirements {
		object.MatchExpressions = append(object.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return object
}
