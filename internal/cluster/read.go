package cluster

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
)

// keyedObject is one object of a manifest other than a Node.
type keyedObject struct {
	kind   Kind
	key    Key
	object any // *Namespace, *Pod, …
	place  *position
}

// reader reads one object into a manifest.
type reader func(d document, m *manifest, asJSON []byte) []error

// readers are the kinds that matter for the network.
var readers = map[metav1.TypeMeta]reader{
	{APIVersion: "v1", Kind: "Node"}:                            document.readNode,
	{APIVersion: "v1", Kind: "Namespace"}:                       read(KindNamespace, reduceNamespace),
	{APIVersion: "v1", Kind: "Pod"}:                             read(KindPod, reducePod),
	{APIVersion: "v1", Kind: "Service"}:                         read(KindService, reduceService),
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:  read(KindEndpointSlice, reduceEndpointSlice),
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}: document.readNetworkPolicy,
}

// object is what every Kubernetes object has.
type object interface {
	GetNamespace() string
	GetName() string
}

func keyOf(o object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// read makes a reader of a kind from its reduce function.
func read[Full any, PointerToFull interface {
	*Full
	object
}, Reduced interface {
	comparable
	Key() Key
}](kind Kind, reduce func(*Full) (Reduced, []fieldError)) reader {
	return func(d document, m *manifest, asJSON []byte) []error {
		full := new(Full)
		if errs := d.unmarshal(asJSON, kind, PointerToFull(full)); len(errs) > 0 {
			return errs
		}
		reduced, wrong := reduce(full)
		if len(wrong) > 0 {
			return d.wrong(kind, PointerToFull(full), wrong)
		}
		var none Reduced
		if reduced != none {
			m.objects = append(m.objects, keyedObject{kind, reduced.Key(), reduced, d.position("metadata.name")})
		}
		return nil
	}
}

func (d document) readNode(m *manifest, asJSON []byte) []error {
	var full corev1.Node
	if errs := d.unmarshal(asJSON, KindNode, &full); len(errs) > 0 {
		return errs
	}
	node, wrong := reduceNode(&full)
	if len(wrong) > 0 {
		return d.wrong(KindNode, &full, wrong)
	}
	fields := append([]string{"metadata.name"}, node.addressField...)
	node.place = d.position(append(fields, node.cidrField...)...)
	m.nodes = append(m.nodes, node)
	return nil
}

// unmarshal reads an object strictly: unknown fields are errors.
func (d document) unmarshal(asJSON []byte, kind Kind, into object) (errs []error) {
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
		errs = append(errs, d.errorf(path, "%s %s: %w", kind, keyOf(into), err))
	}
	return errs
}

// wrong gives the errors of an object's fields with their lines.
func (d document) wrong(kind Kind, o object, wrong []fieldError) (errs []error) {
	for _, w := range wrong {
		errs = append(errs, d.errorf(w.field, "%s %s: %w", kind, keyOf(o), w))
	}
	return errs
}
