package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is what a URL asks for.
type request struct {
	kind            *kind
	namespace, name string
	serializer      runtime.SerializerInfo
}

// serve answers one request. Only objects of kinds can be read; whatever is written is accepted, and kept for some kinds.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if slices.Contains([]string{"/healthz", "/livez", "/readyz"}, r.URL.Path) {
		_, _ = io.WriteString(w, "ok")
		return
	}
	asked, ok := parse(r)
	if r.Method != http.MethodGet {
		if asked.kind != nil && asked.kind.keeps(r) {
			s.keep(w, r, asked)
		} else {
			s.accept(w, r, asked)
		}
		return
	}
	if !ok {
		asked.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such resource: "+r.URL.Path)
		return
	}
	query := r.URL.Query()
	which, err := newSelection(asked.namespace, query)
	if err != nil {
		asked.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	switch watch := query.Get("watch"); {
	case asked.name != "":
		s.get(w, asked)
	case watch == "true" || watch == "1":
		s.watch(w, r, asked, which)
	default:
		s.list(w, asked, which)
	}
}

// parse reads /api/v1/… and /apis/GROUP/VERSION/…; ok is false if this server has no such objects.
func parse(r *http.Request) (asked request, ok bool) {
	asked.serializer = negotiate(r.Header.Get("Accept"))
	steps := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var group schema.GroupVersion
	switch {
	case len(steps) > 2 && steps[0] == "api":
		group, steps = schema.GroupVersion{Version: steps[1]}, steps[2:]
	case len(steps) > 3 && steps[0] == "apis":
		group, steps = schema.GroupVersion{Group: steps[1], Version: steps[2]}, steps[3:]
	default:
		return asked, false
	}
	if len(steps) > 2 && steps[0] == "namespaces" {
		asked.namespace, steps = steps[1], steps[2:]
	}
	if len(steps) > 1 {
		asked.name = steps[1]
	}
	asked.kind = kindNamed(group, steps[0])
	return asked, asked.kind != nil
}

// negotiate picks the first of the accepted types that there is, and JSON where there is none.
func negotiate(accept string) runtime.SerializerInfo {
	types := codecs().SupportedMediaTypes()
	for _, one := range strings.Split(accept, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(one), ";")
		if strings.Contains(parameters, "as=") {
			continue // another form of the objects, such as a table
		}
		if info, ok := runtime.SerializerInfoForMediaType(types, name); ok && info.StreamSerializer != nil {
			return info
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(types, runtime.ContentTypeJSON)
	return info
}

// encode writes an object in the requested form.
func (r request) encode(o runtime.Object) ([]byte, error) {
	group := schema.GroupVersion{Version: "v1"}
	if r.kind != nil {
		group = r.kind.group
	}
	if _, ok := o.(*metav1.Status); ok {
		group = schema.GroupVersion{Version: "v1"}
	}
	return runtime.Encode(codecs().EncoderForVersion(r.serializer.Serializer, group), o.DeepCopyObject()) // the encoder writes to it
}

func (r request) write(w http.ResponseWriter, code int, o runtime.Object) {
	data, err := r.encode(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", r.serializer.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(data) // a client that has gone needs nothing
}

func (r request) fail(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	r.write(w, int(code), &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message})
}

func (s *Server) get(w http.ResponseWriter, asked request) {
	s.mu.Lock()
	o := s.collection(asked.kind).objects[asked.namespace+"/"+asked.name]
	s.mu.Unlock()
	if o == nil {
		asked.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", asked.kind.name, asked.name))
		return
	}
	asked.write(w, http.StatusOK, o)
}

// list returns everything at once: a client's limit is only a wish.
func (s *Server) list(w http.ResponseWriter, asked request, which selection) {
	s.mu.Lock()
	all, version := s.collection(asked.kind).sorted(), s.version
	s.mu.Unlock()
	all = slices.DeleteFunc(all, func(o runtime.Object) bool { return !which.has(o) })
	list := asked.kind.list.DeepCopyObject()
	m, err := meta.ListAccessor(list)
	if err == nil {
		m.SetResourceVersion(strconv.Itoa(version))
		err = meta.SetList(list, all)
	}
	if err != nil {
		asked.fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	asked.write(w, http.StatusOK, list)
}

// accept answers a write with what is written to: the object as it is, or what came in where there is none.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, asked request) {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if asked.kind != nil && asked.name != "" {
		s.get(w, asked)
		return
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(code)
	_, _ = w.Write(content)
}
