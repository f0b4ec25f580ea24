package cluster

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Reduce checks an object from an API server and keeps what snapshots need: a *NodeObject, *Namespace, *Pod,
// *Service, *EndpointSlice or *NetworkPolicy. It keeps no reference to the full object. Both results are nil for an
// object that snapshots omit. The error names object and field. A *NetworkPolicy may come with an error: see
// NetworkPolicy.Invalid.
func Reduce(full any) (reduced any, err error) {
	switch o := full.(type) {
	case *corev1.Node:
		node, wrong := reduceNode(o)
		return result(KindNode, o, &NodeObject{node}, wrong)
	case *corev1.Namespace:
		namespace, wrong := reduceNamespace(o)
		return result(KindNamespace, o, namespace, wrong)
	case *corev1.Pod:
		pod, wrong := reducePod(o)
		return result(KindPod, o, pod, wrong)
	case *corev1.Service:
		service, wrong := reduceService(o)
		return result(KindService, o, service, wrong)
	case *discoveryv1.EndpointSlice:
		slice, wrong := reduceEndpointSlice(o)
		return result(KindEndpointSlice, o, slice, wrong)
	case *networkingv1.NetworkPolicy:
		policy, wrong := reduceNetworkPolicy(o)
		_, err := result(KindNetworkPolicy, o, policy, wrong)
		return policy, err
	}
	return nil, fmt.Errorf("snapshots have no %T", full)
}

// result describes what is wrong with an object. A nil pointer without errors becomes nil.
func result[T any](kind Kind, full object, reduced *T, wrong []fieldError) (any, error) {
	switch {
	case len(wrong) > 0:
		return nil, fmt.Errorf("%s %s: %s", kind, keyOf(full), inShort(wrong))
	case reduced == nil:
		return nil, nil
	}
	return reduced, nil
}

// Equal reports whether two results of Reduce are equal.
func Equal(a, b any) bool { return reflect.DeepEqual(a, b) }
