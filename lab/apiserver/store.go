package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// collection holds the objects of one kind, and what has happened to them since the server began: a lab does not live
// long enough for that to be forgotten.
type collection struct {
	objects map[string]runtime.Object
	history []event
}

// event is one change. The object does not change any more.
type event struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

// Put makes objects or replaces them, all in one step: no reader sees some of them only. It keeps copies.
func (s *Server) Put(objects ...runtime.Object) error {
	return s.change(objects, func(c *collection, key string, o runtime.Object, m metav1.Object) error {
		if m.GetUID() == "" {
			m.SetUID(types.UID(key))
		}
		s.put(c, key, o)
		return nil
	})
}

// put makes or replaces an object of the server's version. The caller holds the lock.
func (s *Server) put(c *collection, key string, o runtime.Object) {
	kind := watch.Added
	if c.objects[key] != nil {
		kind = watch.Modified
	}
	c.objects[key] = o
	c.history = append(c.history, event{s.version, kind, o})
}

// Delete removes objects, found by kind, namespace and name, in one step. One that is not there is an error.
func (s *Server) Delete(objects ...runtime.Object) error {
	return s.change(objects, func(c *collection, key string, _ runtime.Object, m metav1.Object) error {
		if c.objects[key] == nil {
			return fmt.Errorf("delete %s: no such object", key)
		}
		return s.remove(c, key, m.GetResourceVersion())
	})
}

// remove removes an object, whose last state has the version. The caller holds the lock.
func (s *Server) remove(c *collection, key, version string) error {
	gone := c.objects[key].DeepCopyObject()
	last, err := meta.Accessor(gone)
	if err != nil {
		return err
	}
	last.SetResourceVersion(version)
	delete(c.objects, key)
	c.history = append(c.history, event{s.version, watch.Deleted, gone})
	return nil
}

func (s *Server) change(objects []runtime.Object, apply func(*collection, string, runtime.Object, metav1.Object) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify() // also of those before one that fails
	for _, o := range objects {
		k, err := kindOf(o)
		if err != nil {
			return err
		}
		o = o.DeepCopyObject()
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		s.version++
		m.SetResourceVersion(strconv.Itoa(s.version))
		key := m.GetNamespace() + "/" + m.GetName()
		if err := apply(s.collection(k), key, o, m); err != nil {
			return err
		}
	}
	return nil
}

// notify wakes all watches. The caller holds the lock.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// collection returns that of a kind. The caller holds the lock.
func (s *Server) collection(k *kind) *collection {
	if s.collections[k] == nil {
		s.collections[k] = &collection{objects: map[string]runtime.Object{}}
	}
	return s.collections[k]
}

// sorted are the objects by namespace and name.
func (c *collection) sorted() []runtime.Object {
	var all []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		all = append(all, c.objects[key])
	}
	return all
}

// since are the events after a version.
func (c *collection) since(version int) []event {
	i, _ := slices.BinarySearchFunc(c.history, version+1, func(e event, v int) int { return e.version - v })
	return c.history[i:]
}

// Objects are those of one kind, by namespace and name. They belong to the server.
func Objects[T runtime.Object](s *Server) (list []T) {
	var example T
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, err := kindOf(example); err == nil {
		for _, o := range s.collection(k).sorted() {
			list = append(list, o.(T))
		}
	}
	return list
}
