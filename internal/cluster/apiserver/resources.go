package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// resource is the watch of one kind.
type resource struct {
	kind  cluster.Kind
	group schema.GroupVersion
	// name is the plural in URLs and in RBAC rules.
	name string
	// labels selects the objects that the server sends; empty selects all.
	labels string
	// object and empty are an empty object and an empty list.
	object, empty runtime.Object
	// optional says that a server may not have the kind: it has none of it then.
	optional bool
}

// resources are all watched resources.
var resources = []resource{
	{kind: cluster.KindNode, group: corev1.SchemeGroupVersion, name: "nodes", object: &corev1.Node{}, empty: &corev1.NodeList{}},
	{kind: cluster.KindNamespace, group: corev1.SchemeGroupVersion, name: "namespaces", object: &corev1.Namespace{}, empty: &corev1.NamespaceList{}},
	{kind: cluster.KindPod, group: corev1.SchemeGroupVersion, name: "pods", object: &corev1.Pod{}, empty: &corev1.PodList{}},
	{kind: cluster.KindService, group: corev1.SchemeGroupVersion, name: "services", labels: cluster.ServiceSelector,
		object: &corev1.Service{}, empty: &corev1.ServiceList{}},
	{kind: cluster.KindEndpointSlice, group: discoveryv1.SchemeGroupVersion, name: "endpointslices", labels: cluster.ServiceSelector,
		object: &discoveryv1.EndpointSlice{}, empty: &discoveryv1.EndpointSliceList{}},
	{kind: cluster.KindNetworkPolicy, group: networkingv1.SchemeGroupVersion, name: "networkpolicies",
		object: &networkingv1.NetworkPolicy{}, empty: &networkingv1.NetworkPolicyList{}},
	{kind: cluster.KindIPPool, group: v1alpha1.SchemeGroupVersion, name: "ippools", object: &v1alpha1.IPPool{}, empty: &v1alpha1.IPPoolList{}, optional: true},
}

// apiVersion gives the group and version of a kind.
func apiVersion(kind cluster.Kind) string {
	at := slices.IndexFunc(resources, func(r resource) bool { return r.kind == kind })
	return resources[at].group.String()
}

// Rule is a permission that this package needs, as in a ClusterRole.
type Rule struct {
	Group, Resource string
	Verbs           []string
}

// Rules are all permissions that this package needs: the ClusterRole in deploy/ has exactly these. Reporter.Allowed
// also creates tokenreviews and subjectaccessreviews; the chart grants them where metrics are served beyond the node.
func Rules() []Rule {
	rules := []Rule{
		{Resource: "nodes/status", Verbs: []string{"patch"}},
		{Resource: "events", Verbs: []string{"create", "patch"}},
		{Group: v1alpha1.SchemeGroupVersion.Group, Resource: "ippools/status", Verbs: []string{"patch"}},
		{Group: v1alpha1.SchemeGroupVersion.Group, Resource: claimsName, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}},
		{Group: "apps", Resource: "statefulsets", Verbs: []string{"get"}},
	}
	for _, r := range resources {
		verbs := []string{"list", "watch"}
		switch r.kind {
		case cluster.KindNode:
			verbs = append(verbs, "get", "patch") // its taint
		case cluster.KindPod:
			verbs = append(verbs, "get")
		}
		rules = append(rules, Rule{Group: r.group.Group, Resource: r.name, Verbs: verbs})
	}
	return rules
}
