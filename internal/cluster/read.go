package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// keyedObject is one object of a manifest.
type keyedObject struct {
	kind   Kind
	object keyed // *NodeObject, *Namespace, …
	place  position
}

// newObjects make objects of the kinds that matter for the network.
var newObjects = map[metav1.TypeMeta]func() object{
	{APIVersion: "v1", Kind: "Node"}:                                   func() object { return new(corev1.Node) },
	{APIVersion: "v1", Kind: "Namespace"}:                              func() object { return new(corev1.Namespace) },
	{APIVersion: "v1", Kind: "Pod"}:                                    func() object { return new(corev1.Pod) },
	{APIVersion: "v1", Kind: "Service"}:                                func() object { return new(corev1.Service) },
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:         func() object { return new(discoveryv1.EndpointSlice) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:        func() object { return new(networkingv1.NetworkPolicy) },
	{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPPool"}: func() object { return new(v1alpha1.IPPool) },
}

// versionOf gives the apiVersion in which a kind that matters for the network is read; empty for other kinds. The same name in the
// API group of somebody else is another kind. Without a group, and in the group extensions, from which Kubernetes moved them, it is not.
func versionOf(of metav1.TypeMeta) string {
	group, _, grouped := strings.Cut(of.APIVersion, "/")
	for known := range newObjects {
		own, _, _ := strings.Cut(known.APIVersion, "/")
		if known.Kind == of.Kind && (!grouped || group == own || group == "extensions") {
			return known.APIVersion
		}
	}
	return ""
}

// unknownVersion says that an apiVersion is not the one that is read.
func unknownVersion(version, known string) error {
	if version == "" {
		return fmt.Errorf("apiVersion is missing; known: %s", known)
	}
	return fmt.Errorf("apiVersion %q is not known; known: %s", version, known)
}

// readUnknownVersion reads an object of a kind that matters for the network, but of another apiVersion. Only a
// NetworkPolicy has a result: omitting it would open the pods that it may isolate.
func (d document) readUnknownVersion(m *manifest, of metav1.TypeMeta, asJSON []byte) []error {
	err := unknownVersion(of.APIVersion, versionOf(of))
	if of.Kind == string(KindNetworkPolicy) {
		return d.readUnknownNetworkPolicy(m, asJSON, err)
	}
	var named metav1.PartialObjectMetadata
	if json.Unmarshal(asJSON, &named) != nil {
		return []error{d.errorf("apiVersion", "%s: %w", of.Kind, err)}
	}
	return []error{d.errorf("apiVersion", "%s %s: %w", of.Kind, keyOf(&named), err)}
}

// readObject reads the document into an empty object and adds that to the manifest.
func (d document) readObject(m *manifest, full object, asJSON []byte) []error {
	if policy, ok := full.(*networkingv1.NetworkPolicy); ok {
		return d.readNetworkPolicy(m, policy, asJSON)
	}
	if errs := d.unmarshal(asJSON, full); len(errs) > 0 {
		return errs
	}
	reduced, wrong := reduce(full)
	if reduced != nil && len(wrong) == 0 {
		d.add(m, kindOf(full), reduced)
		if service, ok := full.(*corev1.Service); ok {
			for _, field := range notAllocated(service) {
				m.complaints = append(m.complaints, d.errorf(field, "%s %s: %s is missing: an API server would set it", KindService, keyOf(full), field))
			}
		}
	}
	return d.wrong(full, wrong)
}

// notAllocated gives the fields of a Service that an API server would set. Without them the Service applies, but has no
// cluster IP or node port.
func notAllocated(s *corev1.Service) (fields []string) {
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0 {
		fields = append(fields, "spec.clusterIPs")
	}
	allocates := s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer && allocates {
		for i, port := range s.Spec.Ports {
			if port.NodePort == 0 {
				fields = append(fields, fmt.Sprintf("spec.ports[%d].nodePort", i))
			}
		}
	}
	return fields
}

// add adds a reduced object with the lines of the fields that may contradict other objects.
func (d document) add(m *manifest, kind Kind, reduced keyed) {
	fields := []string{"metadata.name"}
	if node, ok := reduced.(*NodeObject); ok {
		fields = slices.Concat(fields, node.addressField, node.cidrField)
	}
	m.objects = append(m.objects, keyedObject{kind, reduced, d.position(fields)})
}

// unmarshal reads an object strictly: unknown fields are errors.
func (d document) unmarshal(asJSON []byte, into object) (errs []error) {
	strict, err := strictjson.UnmarshalStrict(asJSON, into)
	if err != nil {
		return []error{d.typeError(err)}
	}
	for _, err := range strict {
		path := ""
		var field strictjson.FieldError
		if errors.As(err, &field) {
			path = field.FieldPath()
		}
		errs = append(errs, d.errorf(path, "%s %s: %w", kindOf(into), keyOf(into), err))
	}
	return errs
}

// wrong gives the errors of an object's fields with their lines.
func (d document) wrong(o object, wrong []fieldError) (errs []error) {
	for _, w := range wrong {
		errs = append(errs, d.errorf(w.field, "%s %s: %w", kindOf(o), keyOf(o), w))
	}
	return errs
}
