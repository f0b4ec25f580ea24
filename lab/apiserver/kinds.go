package apiserver

import (
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// kind is what the server knows of one kind of object.
type kind struct {
	group schema.GroupVersion
	// name is the plural in URLs.
	name string
	// object and list are empty examples.
	object, list runtime.Object
}

// kinds are all that the server has.
var kinds = []*kind{
	{corev1.SchemeGroupVersion, "nodes", &corev1.Node{}, &corev1.NodeList{}},
	{corev1.SchemeGroupVersion, "namespaces", &corev1.Namespace{}, &corev1.NamespaceList{}},
	{corev1.SchemeGroupVersion, "pods", &corev1.Pod{}, &corev1.PodList{}},
	{corev1.SchemeGroupVersion, "services", &corev1.Service{}, &corev1.ServiceList{}},
	{corev1.SchemeGroupVersion, "endpoints", &corev1.Endpoints{}, &corev1.EndpointsList{}}, //nolint:staticcheck // deprecated, and kube-router lists them
	{discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
	{networkingv1.SchemeGroupVersion, "networkpolicies", &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicyList{}},
	{networkingv1.SchemeGroupVersion, "servicecidrs", &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
	{v1alpha1.SchemeGroupVersion, "ippools", &v1alpha1.IPPool{}, &v1alpha1.IPPoolList{}},
	{v1alpha1.SchemeGroupVersion, "ipclaims", &v1alpha1.IPClaim{}, &v1alpha1.IPClaimList{}},
}

// keeps reports whether the server keeps what a request writes: only agents write objects of their own group, and patch the annotations
// and taints of Nodes. Of a strategic merge patch, as of a Node's status, the server keeps annotations: see keep.
func (k *kind) keeps(r *http.Request) bool {
	return k.group == v1alpha1.SchemeGroupVersion || k.name == "nodes" && r.Method == http.MethodPatch
}

func kindNamed(group schema.GroupVersion, name string) *kind {
	for _, k := range kinds {
		if k.group == group && k.name == name {
			return k
		}
	}
	return nil
}

func kindOf(o runtime.Object) (*kind, error) {
	for _, k := range kinds {
		if fmt.Sprintf("%T", k.object) == fmt.Sprintf("%T", o) {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%T is no object of this server", o)
}

// codecs are made when a server first runs: the agent, which is the same program, does not pay for them.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(networkingv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(s)
})
