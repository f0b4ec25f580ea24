package apiserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// store is what a reflector writes to. It implements cache.TransformingStore: objects are reduced one by one as they
// arrive, so that full objects never accumulate.
type store struct {
	source *Source
	kind   cluster.Kind
}

// reduce makes an item of a full object.
func (s *Source) reduce(full runtime.Object) (*item, error) {
	m, err := meta.Accessor(full)
	if err != nil {
		return nil, fmt.Errorf("read metadata of %T: %w", full, err)
	}
	i := &item{key: cluster.Key{Namespace: m.GetNamespace(), Name: m.GetName()}}
	i.reduced, i.err = cluster.Reduce(full)
	if i.err != nil {
		i.uid = string(m.GetUID())
	}
	if node, ok := i.reduced.(*cluster.NodeObject); ok && node.Name != s.nodeName {
		node.Labels = cluster.Labels{} // a kilobyte for each node
	}
	if node, ok := full.(*corev1.Node); ok {
		i.uid = node.Name // as in the kubelet's Events
		if node.Name == s.nodeName {
			i.own = readOwn(node)
		}
	}
	return i, nil
}

func (s *store) item(object any) (*item, error) {
	if i, ok := object.(*item); ok {
		return i, nil
	}
	full, ok := object.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not a Kubernetes object", object)
	}
	return s.source.reduce(full)
}

// Transformer reduces an object.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.item(object) }
}

// Add adds a new object.
func (s *store) Add(object any) error { return s.Update(object) }

// Update replaces an object.
func (s *store) Update(object any) error {
	i, err := s.item(object)
	if err != nil {
		return err
	}
	s.source.change(s.kind, false, func(of section) bool { return of.set(i) })
	return nil
}

// Delete removes an object.
func (s *store) Delete(object any) error {
	i, err := s.item(object)
	if err != nil {
		return err
	}
	s.source.change(s.kind, false, func(of section) bool { return of.remove(i.key) })
	return nil
}

// Replace replaces the whole list.
func (s *store) Replace(objects []any, _ string) error {
	items := make([]*item, len(objects))
	for n, object := range objects {
		var err error
		if items[n], err = s.item(object); err != nil {
			return err
		}
	}
	s.source.change(s.kind, true, func(of section) bool { return replace(of, items) })
	return nil
}

// Resync does nothing: no event is ever lost.
func (s *store) Resync() error { return nil }
