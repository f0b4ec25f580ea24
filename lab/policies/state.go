package policies

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// State is what an API server knows of policies, for those who have no API server.
type State struct {
	namespaces map[string]*corev1.Namespace
	pods       map[string]*corev1.Pod
	policies   map[string]*networkingv1.NetworkPolicy
}

// NewState is a state without objects.
func NewState() *State {
	return &State{map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]*networkingv1.NetworkPolicy{}}
}

// Put adds objects or replaces those of the same name. They belong to the state from then on.
func (s *State) Put(objects ...runtime.Object) error {
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			s.namespaces[o.Name] = o
		case *corev1.Pod:
			s.pods[o.Namespace+"/"+o.Name] = o
		case *networkingv1.NetworkPolicy:
			s.policies[o.Namespace+"/"+o.Name] = o
		default:
			return fmt.Errorf("put %T: policies know no such object", o)
		}
	}
	return nil
}

// Delete removes objects by their names.
func (s *State) Delete(objects ...runtime.Object) {
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			delete(s.namespaces, o.Name)
		case *corev1.Pod:
			delete(s.pods, o.Namespace+"/"+o.Name)
		case *networkingv1.NetworkPolicy:
			delete(s.policies, o.Namespace+"/"+o.Name)
		}
	}
}

// Namespace gives a namespace, nil if there is none of that name.
func (s *State) Namespace(name string) *corev1.Namespace { return s.namespaces[name] }

// Pods and Policies are all of them by namespace and name.
func (s *State) Pods() []*corev1.Pod                     { return ordered(s.pods) }
func (s *State) Policies() []*networkingv1.NetworkPolicy { return ordered(s.policies) }

func ordered[T any](m map[string]T) []T {
	list := make([]T, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[key])
	}
	return list
}
