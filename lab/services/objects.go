// Package services makes the objects of the Service bench: nodes, Services and EndpointSlices, the same for everybody.
package services

import (
	"cmp"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Namespace is that of all Services of a lab.
const Namespace = "default"

// Backend is one address behind a Service, on a node.
type Backend struct {
	Address netip.Addr
	Node    string
}

// Service is a Service with its endpoints: what the two objects of it say.
type Service struct {
	Name string
	// Address is the ClusterIP.
	Address netip.Addr
	// Ports are of one protocol, TCP unless it is set; backends listen on the same numbers.
	Ports    []int
	Protocol corev1.Protocol
	// NodePorts are, for each of Ports, the port of nodes; empty for a Service of type ClusterIP.
	NodePorts []int
	Backends  []Backend
}

// Objects are the Service and its EndpointSlice.
func (s Service) Objects() []runtime.Object { return []runtime.Object{s.service(), s.Slice()} }

func (s Service) service() *corev1.Service {
	o := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.Name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: s.Address.String(), ClusterIPs: []string{s.Address.String()},
			IPFamilies: []corev1.IPFamily{s.family()}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	for i, port := range s.Ports {
		p := corev1.ServicePort{Name: portName(port), Protocol: s.protocol(), Port: int32(port), TargetPort: intstr.FromInt32(int32(port))}
		if len(s.NodePorts) > 0 {
			p.NodePort = int32(s.NodePorts[i])
		}
		o.Spec.Ports = append(o.Spec.Ports, p)
	}
	if len(s.NodePorts) > 0 {
		o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyCluster
	}
	return o
}

func (s Service) protocol() corev1.Protocol { return cmp.Or(s.Protocol, corev1.ProtocolTCP) }

func (s Service) family() corev1.IPFamily {
	if s.Address.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// Slice is the EndpointSlice alone, which changes when backends come and go.
func (s Service) Slice() *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: s.Name + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "beeline-bench"},
		},
		AddressType: discoveryv1.AddressType(s.family()),
	}
	for _, port := range s.Ports {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: new(portName(port)), Protocol: new(s.protocol()), Port: new(int32(port))})
	}
	for _, b := range s.Backends {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{b.Address.String()}, NodeName: new(b.Node),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return o
}

func portName(port int) string { return fmt.Sprintf("port-%d", port) }

// Node is the Node object of a lab's node, ready for pods.
func Node(n *testbed.Node) *corev1.Node {
	o := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name}},
	}
	for _, cidr := range n.PodCIDRs {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, cidr.String())
	}
	o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
	for _, a := range n.Addresses {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.Addr().String()})
	}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Lab"}}
	return o
}
