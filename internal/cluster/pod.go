package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// Pod is a pod, reduced to what Services and NetworkPolicies need. Readiness is not kept: EndpointSlices have it
// where it matters, and it changes far more often.
type Pod struct {
	Namespace, Name string
	// UID is the UID that the kubelet uses; the API object of a static pod has another one. Zero if there is none.
	UID UID
	// Node is its node; empty while it is not scheduled.
	Node string
	// HostNetwork says that it has the addresses of its node.
	HostNetwork bool
	// Ended says that all its containers have terminated for good: another pod may already have its addresses.
	Ended bool
	// Addresses are status.podIPs, at most one of each family; none before they are assigned.
	Addresses []netip.Addr
	Labels    Labels
	// IPPools is the annotation that names its IPPools; empty if it has none.
	IPPools string
	// StatefulSet is the name of its controller, if that is a StatefulSet.
	StatefulSet string
	// Ports are the named ports, for NetworkPolicies, in the order of the containers. Pods of a Deployment share one
	// list.
	Ports []ContainerPort
	// Bandwidth has its limits; nil if it has none.
	Bandwidth *Bandwidth
	// SameNode is the value of SameNodeAnnotation.
	SameNode string
	// Device is the annotation with the kind of its device; empty if it has none. What is no kind may be cut.
	Device string
	// RuntimeClass is spec.runtimeClassName; empty if it has none.
	RuntimeClass string
}

// deviceMax is how much of AnnotationDevice is kept: more than the name of any kind, enough for an error.
const deviceMax = 16

// SameNodeAnnotation says how a pod exchanges TCP data with other pods of its node that have it too. The one value with
// a meaning is SameNodeSockets.
const SameNodeAnnotation = "networking.beeline.dev/same-node"

// SameNodeSockets is from socket to socket.
const SameNodeSockets = "sockets"

// Key gives namespace and name.
func (p *Pod) Key() Key { return Key{p.Namespace, p.Name} }

// ContainerPort is a named port of a pod.
type ContainerPort struct {
	Name     string
	Protocol Protocol
	Number   uint16
}

// reducePod checks a Pod and reduces it.
func reducePod(p *corev1.Pod) (*Pod, []fieldError) {
	var c checks
	key := c.key(p.Namespace, p.Name, validation.IsDNS1123Subdomain)
	pod := &Pod{
		Namespace:   key.Namespace,
		Name:        key.Name,
		UID:         NewUID(cmp.Or(p.Annotations[corev1.MirrorPodAnnotationKey], string(p.UID))),
		Node:        Intern(p.Spec.NodeName),
		HostNetwork: p.Spec.HostNetwork,
		Ended:       p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Labels:      NewLabels(p.Labels),
		IPPools:     Intern(p.Annotations[v1alpha1.AnnotationIPPool]),
		StatefulSet: Intern(statefulSetOf(p)),
	}
	if p.Annotations[SameNodeAnnotation] == SameNodeSockets {
		pod.SameNode = SameNodeSockets // other values have no meaning, and take no memory
	}
	if kind := p.Annotations[v1alpha1.AnnotationDevice]; kind != "" {
		pod.Device = Intern(strings.ToValidUTF8(kind[:min(len(kind), deviceMax)], ""))
	}
	pod.Bandwidth = bandwidthOf(p.Annotations, c.fail)
	if p.Spec.RuntimeClassName != nil {
		pod.RuntimeClass = Intern(*p.Spec.RuntimeClassName)
	}
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		if addr, ok := c.address("status.podIP", p.Status.PodIP, "a pod"); ok {
			pod.Addresses = []netip.Addr{addr}
		}
	}
	if n := len(p.Status.PodIPs); n > 0 {
		pod.Addresses = make([]netip.Addr, 0, n)
	}
	for i, ip := range p.Status.PodIPs {
		field := fmt.Sprintf("status.podIPs[%d].ip", i)
		addr, ok := c.address(field, ip.IP, "a pod")
		if !ok {
			continue
		}
		for _, other := range pod.Addresses {
			if other.Is4() == addr.Is4() {
				c.fail(field, "%s is of the same family as %s, one of each is allowed", addr, other)
			}
		}
		pod.Addresses = append(pod.Addresses, addr)
	}
	pod.namePorts(&c, "spec.containers", p.Spec.Containers, false)
	pod.namePorts(&c, "spec.initContainers", p.Spec.InitContainers, true)
	pod.Ports = knownPorts.share(pod.Ports)
	return pod, c.errs
}

// statefulSetOf gives the name of the StatefulSet that controls a pod; empty if there is none.
func statefulSetOf(p *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil || owner.Kind != v1alpha1.KindStatefulSet || !strings.HasPrefix(owner.APIVersion, "apps/") {
		return ""
	}
	return owner.Name
}

// namePorts adds the named ports of containers; of init containers only those of sidecars.
func (p *Pod) namePorts(c *checks, field string, containers []corev1.Container, init bool) {
	for i, container := range containers {
		if init && (container.RestartPolicy == nil || *container.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
			continue
		}
		for j, port := range container.Ports {
			if port.Name == "" {
				continue
			}
			at := fmt.Sprintf("%s[%d].ports[%d]", field, i, j)
			p.Ports = append(p.Ports, ContainerPort{
				Name:     Intern(port.Name),
				Protocol: c.protocol(at+".protocol", port.Protocol),
				Number:   c.port(at+".containerPort", port.ContainerPort),
			})
		}
	}
}

// Namespace is a namespace.
type Namespace struct {
	Name   string
	Labels Labels
	// IPPools is the annotation that names the IPPools of its pods; empty if it has none.
	IPPools string
}

// Key gives the name.
func (n *Namespace) Key() Key { return Key{Name: n.Name} }

// reduceNamespace checks a Namespace and reduces it. It adds the label with its name, which the API server sets.
func reduceNamespace(n *corev1.Namespace) (*Namespace, []fieldError) {
	var c checks
	c.name(n.Name, validation.IsDNS1123Label)
	labels := map[string]string{}
	for k, v := range n.Labels {
		labels[k] = v
	}
	labels[corev1.LabelMetadataName] = n.Name
	return &Namespace{Name: Intern(n.Name), Labels: NewLabels(labels), IPPools: Intern(n.Annotations[v1alpha1.AnnotationIPPool])}, c.errs
}
