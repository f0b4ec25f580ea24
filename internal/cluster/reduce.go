package cluster

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Reduce checks an object as an API server gives it and keeps what snapshots have of it: a *NodeObject, *Namespace, *Pod,
// *Service, *EndpointSlice or *NetworkPolicy. Nothing of the full object stays referenced. Both results are nil for an
// object that snapshots do not have. The error names object and field. Of a *NetworkPolicy there is a result beside the error: see
// NetworkPolicy.Wrong.
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

// result words what is wrong with an object. Without a complaint a nil pointer becomes nil.
func result[T any](kind Kind, full object, reduced *T, wrong []fieldError) (any, error) {
	switch {
	case len(wrong) > 0:
		return nil, fmt.Errorf("%s %s: %s", kind, keyOf(full), wrongInShort(wrong))
	case reduced == nil:
		return nil, nil
	}
	return reduced, nil
}

// Equal tells whether two results of Reduce say the same.
func Equal(a, b any) bool { return reflect.DeepEqual(a, b) }
