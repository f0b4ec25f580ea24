package policies

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// State is what an API server knows of policies, for networks without one. Several goroutines may read it while none
// changes it.
type State struct {
	namespaces map[string]*corev1.Namespace
	pods       map[string]*corev1.Pod
	policies   map[string]*networkingv1.NetworkPolicy
	// What follows is a cache, made anew with each change: readers are frequent.
	sortedPods     []*corev1.Pod
	sortedPolicies []*networkingv1.NetworkPolicy
}

// NewState is a state without objects.
func NewState() *State {
	return &State{namespaces: map[string]*corev1.Namespace{}, pods: map[string]*corev1.Pod{}, policies: map[string]*networkingv1.NetworkPolicy{}}
}

// Put adds objects or replaces those of the same name. They belong to the state from then on.
func (s *State) Put(objects ...runtime.Object) error {
	defer s.sort()
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
	defer s.sort()
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

// Namespace returns a namespace, nil if there is none of that name.
func (s *State) Namespace(name string) *corev1.Namespace { return s.namespaces[name] }

// Pods and Policies are all of them by namespace and name. The lists are the state's own.
func (s *State) Pods() []*corev1.Pod                     { return s.sortedPods }
func (s *State) Policies() []*networkingv1.NetworkPolicy { return s.sortedPolicies }

func (s *State) sort() { s.sortedPods, s.sortedPolicies = ordered(s.pods), ordered(s.policies) }

func ordered[T any](m map[string]T) []T {
	list := make([]T, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[key])
	}
	return list
}
