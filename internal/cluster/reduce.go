package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// object is a full Kubernetes object.
type object interface {
	GetNamespace() string
	GetName() string
}

func keyOf(o object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// kindOf gives the kind of an object, which is the name of its type.
func kindOf(o object) Kind { return Kind(reflect.TypeOf(o).Elem().Name()) }

// Reduce checks an object from an API server and keeps what snapshots need: a *NodeObject, *Namespace, *Pod,
// *Service, *EndpointSlice, *NetworkPolicy or *IPPool. It keeps no reference to the full object. Both results are nil for an
// object that snapshots omit. The error names object and field. A *NetworkPolicy or *IPPool may come with an error: see
// their fields Invalid. So may a *Pod whose bandwidth annotations are invalid: its labels and addresses are still valid.
func Reduce(full any) (any, error) {
	o, ok := full.(object)
	if !ok {
		return nil, fmt.Errorf("%T is not a Kubernetes object", full)
	}
	reduced, wrong := reduce(o)
	if len(wrong) == 0 {
		return reduced, nil
	}
	err := fmt.Errorf("%s %s: %s", kindOf(o), keyOf(o), inShort(wrong))
	if valid(reduced, wrong) {
		return reduced, err
	}
	return nil, err
}

// keyed is the reduced form of an object.
type keyed interface{ Key() Key }

// reduce checks an object and reduces it; nil without errors if snapshots omit it.
func reduce(full object) (keyed, []fieldError) {
	switch o := full.(type) {
	case *corev1.Node:
		return orNil(reduceNode(o))
	case *corev1.Namespace:
		return orNil(reduceNamespace(o))
	case *corev1.Pod:
		return orNil(reducePod(o))
	case *corev1.Service:
		return orNil(reduceService(o))
	case *discoveryv1.EndpointSlice:
		return orNil(reduceEndpointSlice(o))
	case *networkingv1.NetworkPolicy:
		return orNil(reduceNetworkPolicy(o))
	case *v1alpha1.IPPool:
		return orNil(reduceIPPool(o))
	}
	return nil, []fieldError{{"kind", fmt.Errorf("snapshots have no %T", full)}}
}

// valid reports whether snapshots have an object although parts of it are wrong, which it says itself.
func valid(reduced keyed, wrong []fieldError) bool {
	switch o := reduced.(type) {
	case *NetworkPolicy, *IPPool:
		return true
	case *Pod:
		return o.Bandwidth != nil && o.Bandwidth.Invalid && !slices.ContainsFunc(wrong, func(w fieldError) bool { return !strings.HasPrefix(w.field, annotationField) })
	}
	return false
}

// orNil makes a nil pointer a nil interface.
func orNil[T Object](reduced T, wrong []fieldError) (keyed, []fieldError) {
	var none T
	if reduced == none {
		return nil, wrong
	}
	return reduced, wrong
}

// Equal reports whether two results of Reduce are equal.
func Equal(a, b any) bool { return reflect.DeepEqual(a, b) }
