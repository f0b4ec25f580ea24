package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// keep answers a write to an object of a kind that is kept.
func (s *Server) keep(w http.ResponseWriter, r *http.Request, asked request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if r.Header.Get("Content-Type") == string(types.StrategicMergePatchType) {
		if body = annotationsOf(body); body == nil {
			s.get(w, asked)
			return
		}
	}
	written, err := s.write(r.Method, asked, body)
	var refused *apierrors.StatusError
	switch {
	case errors.As(err, &refused):
		asked.write(w, int(refused.ErrStatus.Code), &refused.ErrStatus)
	case err != nil:
		asked.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case r.Method == http.MethodPost:
		asked.write(w, http.StatusCreated, written)
	default:
		asked.write(w, http.StatusOK, written)
	}
}

// write creates (POST), replaces (PUT), patches or deletes an object without a namespace, and returns it. Of two clients
// that create an object, or write the same version, one gets an error.
func (s *Server) write(method string, asked request, body []byte) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, of := s.collection(asked.kind), schema.GroupResource{Group: asked.kind.group.Group, Resource: asked.kind.name}
	old := c.objects["/"+asked.name]
	if old == nil && method != http.MethodPost {
		return nil, apierrors.NewNotFound(of, asked.name)
	}
	next := asked.kind.object.DeepCopyObject()
	var options metav1.DeleteOptions
	into := any(next)
	switch method {
	case http.MethodPatch: // a merge patch (RFC 7396) of an object with types is decoded into the object
		next = old.DeepCopyObject()
		into = next
	case http.MethodDelete:
		into = &options
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, fmt.Errorf("decode %s of %s %s: %w", method, asked.kind.name, asked.name, err)
	}
	m, key := next.(metav1.Object), "/"+asked.name
	if method == http.MethodPatch {
		if err := removeAnnotations(m, body); err != nil {
			return nil, err
		}
	}
	if method == http.MethodPost {
		if key = "/" + m.GetName(); c.objects[key] != nil {
			return nil, apierrors.NewAlreadyExists(of, m.GetName())
		}
		m.SetUID(types.UID(fmt.Sprintf("%s-%d", m.GetName(), s.version+1)))
	} else if err := admits(preconditions(method, m, options), old.(metav1.Object)); err != nil {
		return nil, apierrors.NewConflict(of, asked.name, err)
	}
	defer s.notify()
	s.version++
	version := strconv.Itoa(s.version)
	if method == http.MethodDelete {
		return old, s.remove(c, key, version)
	}
	m.SetResourceVersion(version)
	s.put(c, key, next)
	return next, nil
}

// annotationsPatch has the annotations of a patch; null removes one.
type annotationsPatch struct {
	Metadata struct {
		Annotations map[string]*string `json:"annotations"`
	} `json:"metadata"`
}

// annotationsOf reduces a patch to its annotations, for which a strategic merge patch is a merge patch; nil without any.
func annotationsOf(patch []byte) []byte {
	var p annotationsPatch
	if json.Unmarshal(patch, &p) != nil || len(p.Metadata.Annotations) == 0 {
		return nil
	}
	reduced, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return reduced
}

// removeAnnotations removes the annotations that are null in a merge patch.
func removeAnnotations(m metav1.Object, patch []byte) error {
	var patched annotationsPatch
	if err := json.Unmarshal(patch, &patched); err != nil {
		return fmt.Errorf("decode the annotations of a patch: %w", err)
	}
	annotations := m.GetAnnotations()
	for name, value := range patched.Metadata.Annotations {
		if value == nil {
			delete(annotations, name)
		}
	}
	m.SetAnnotations(annotations)
	return nil
}

// preconditions are those of a write to an existing object. A patch names no version.
func preconditions(method string, m metav1.Object, options metav1.DeleteOptions) (p metav1.Preconditions) {
	if method == http.MethodDelete {
		if options.Preconditions != nil {
			p = *options.Preconditions
		}
		return p
	}
	uid, version := m.GetUID(), m.GetResourceVersion()
	return metav1.Preconditions{UID: &uid, ResourceVersion: &version}
}

// admits says why preconditions do not hold for an object; nil if they do.
func admits(p metav1.Preconditions, m metav1.Object) error {
	switch {
	case p.UID != nil && *p.UID != m.GetUID():
		return fmt.Errorf("its UID is %s, not %s", m.GetUID(), *p.UID)
	case p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion():
		return fmt.Errorf("its version is %s, not %s", m.GetResourceVersion(), *p.ResourceVersion)
	}
	return nil
}
