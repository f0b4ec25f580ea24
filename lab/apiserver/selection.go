package apiserver

import (
	"net/url"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// selection is which objects of a kind a client wants.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func newSelection(namespace string, query url.Values) (s selection, err error) {
	s.namespace = namespace
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, err
	}
	s.fields, err = fields.ParseSelector(query.Get("fieldSelector"))
	return s, err
}

// has knows the fields that every kind can be selected by.
func (s selection) has(o runtime.Object) bool {
	m, err := meta.Accessor(o)
	if err != nil {
		return false
	}
	return (s.namespace == "" || s.namespace == m.GetNamespace()) && s.labels.Matches(labels.Set(m.GetLabels())) &&
		s.fields.Matches(fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()})
}
