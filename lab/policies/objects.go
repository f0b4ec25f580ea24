// Package policies makes the objects of the policy bench: namespaces, pods and NetworkPolicies, the same for everybody.
package policies

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Default is the namespace of pods that need none of their own.
const Default = "default"

// Namespace is a Namespace with labels, among them the one that the API server gives each.
func Namespace(name string, labels map[string]string) *corev1.Namespace {
	o := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
	}
	for key, value := range labels {
		o.Labels[key] = value
	}
	return o
}

// Pod is a pod as an API server has it.
type Pod struct {
	Namespace, Name, Node string
	// Addresses are empty until the pod's network has been made.
	Addresses           []netip.Addr
	Labels, Annotations map[string]string
	// Web is the number of its TCP port "web"; 0 is none.
	Web uint16
}

// Key names the pod among all.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// UID is the pod's own, as long as there are no two of its name one after the other. It is a UUID: agents take pods with
// other UIDs for static ones, which an API server may not have.
func (p Pod) UID() string {
	sum := sha256.Sum256([]byte(p.Key()))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Object is the Pod.
func (p Pod) Object() *corev1.Pod {
	o := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID()), Labels: p.Labels, Annotations: p.Annotations},
		Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{{Name: "lab"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if p.Web != 0 {
		o.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: WebPort, Protocol: corev1.ProtocolTCP, ContainerPort: int32(p.Web)}}
	}
	for _, a := range p.Addresses {
		o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: a.String()})
		o.Status.PodIP, o.Status.Phase = o.Status.PodIPs[0].IP, corev1.PodRunning
	}
	return o
}

// WebPort is the name by which NetworkPolicies may speak of Pod.Web.
const WebPort = "web"

// Policy makes a NetworkPolicy for the pods with labels (all of the namespace for none) that isolates in the directions
// that there are rules for: an empty list, unlike nil, isolates and allows nothing.
func Policy(namespace, name string, labels map[string]string, ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	o := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labels}, Ingress: ingress, Egress: egress},
	}
	if ingress != nil {
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if egress != nil {
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	return o
}

// Ingress and Egress are rules for one direction each: these peers (everybody for none) on these ports (all for none).
func Ingress(ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyIngressRule {
	return []networkingv1.NetworkPolicyIngressRule{{Ports: ports, From: peers}}
}

// Egress is like Ingress.
func Egress(ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyEgressRule {
	return []networkingv1.NetworkPolicyEgressRule{{Ports: ports, To: peers}}
}

// Pods is the peer of the pods with labels in the policy's own namespace; with a namespace's labels, in the namespaces
// that have those.
func Pods(labels, namespaces map[string]string) networkingv1.NetworkPolicyPeer {
	var peer networkingv1.NetworkPolicyPeer
	if labels != nil {
		peer.PodSelector = &metav1.LabelSelector{MatchLabels: labels}
	}
	if namespaces != nil {
		peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: namespaces}
	}
	return peer
}

// Block is the peer of all addresses in a prefix except those in others.
func Block(cidr netip.Prefix, except ...netip.Prefix) networkingv1.NetworkPolicyPeer {
	block := &networkingv1.IPBlock{CIDR: cidr.String()}
	for _, p := range except {
		block.Except = append(block.Except, p.String())
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: block}
}

// Only is the prefix of a single address.
func Only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Port is a port, or a range of ports when last is above first.
func Port(protocol corev1.Protocol, first, last uint16) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(int32(first)))}
	if last > first {
		p.EndPort = new(int32(last))
	}
	return p
}

// Named is a TCP port by its name.
func Named(name string) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(name))}
}

// TCPPorts are single TCP ports, those that follow each other as ranges.
func TCPPorts(ports ...int) []networkingv1.NetworkPolicyPort {
	var list []networkingv1.NetworkPolicyPort
	ports = slices.Sorted(slices.Values(ports))
	for i := 0; i < len(ports); {
		last := i
		for last+1 < len(ports) && ports[last+1] == ports[last]+1 {
			last++
		}
		list = append(list, Port(corev1.ProtocolTCP, uint16(ports[i]), uint16(ports[last])))
		i = last + 1
	}
	return list
}

func numbered(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
