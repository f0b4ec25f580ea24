package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the API group of Beeline's kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "networking.beeline.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &IPPool{}, &IPPoolList{}, &IPClaim{}, &IPClaimList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
