package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// fakeServer is an API server with lists and watches: resource versions, pages, bookmarks, compacted history, broken
// connections and outages. It supports protobuf only, and for kinds of
// CustomResourceDefinitions JSON only.
type fakeServer struct {
	t    *testing.T
	http *httptest.Server

	mu      sync.Mutex
	version int
	// objects and history by resource. History before compacted is lost.
	objects   map[string]map[string]runtime.Object
	history   map[string][]fakeEvent
	compacted int
	changed   chan struct{} // closed when something happens
	cut       chan struct{} // closed when watches are to break
	down      bool
	old       bool           // without streamed lists
	refuse    map[string]int // by resource: status code
	requests  []string
	patches   []string
}

type fakeEvent struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{
		t: t, objects: map[string]map[string]runtime.Object{}, history: map[string][]fakeEvent{}, refuse: map[string]int{},
		changed: make(chan struct{}), cut: make(chan struct{}), version: 1,
	}
	f.http = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.http.CloseClientConnections()
		f.http.Close()
	})
	return f
}

func (f *fakeServer) connection() *connection {
	c, err := connect(&rest.Config{Host: f.http.URL})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// do changes the server's state and notifies the watches.
func (f *fakeServer) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func nameOf(o runtime.Object) (resource, key string, m metav1.Object) {
	for _, r := range served {
		if fmt.Sprintf("%T", r.object) == fmt.Sprintf("%T", o) {
			resource = r.name
		}
	}
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return resource, m.GetNamespace() + "/" + m.GetName(), m
}

// put creates or updates objects.
func (f *fakeServer) put(objects ...runtime.Object) {
	f.do(func() {
		for _, o := range objects {
			o = o.DeepCopyObject()
			resource, key, m := nameOf(o)
			f.version++
			m.SetResourceVersion(strconv.Itoa(f.version))
			kind := watch.Modified
			if f.objects[resource] == nil {
				f.objects[resource] = map[string]runtime.Object{}
			}
			if f.objects[resource][key] == nil {
				kind = watch.Added
			}
			f.objects[resource][key] = o
			f.history[resource] = append(f.history[resource], fakeEvent{f.version, kind, o})
		}
	})
}

func (f *fakeServer) remove(o runtime.Object) {
	f.do(func() {
		resource, key, _ := nameOf(o)
		f.version++
		gone := f.objects[resource][key].DeepCopyObject()
		_, _, m := nameOf(gone)
		m.SetResourceVersion(strconv.Itoa(f.version))
		delete(f.objects[resource], key)
		f.history[resource] = append(f.history[resource], fakeEvent{f.version, watch.Deleted, gone})
	})
}

// breakWatches ends all watches in the middle.
func (f *fakeServer) breakWatches() {
	f.do(func() {
		close(f.cut)
		f.cut = make(chan struct{})
	})
}

// setDown starts or ends an outage.
func (f *fakeServer) setDown(down bool) {
	f.do(func() { f.down = down })
	if down {
		f.breakWatches()
	}
}

// forget compacts the history.
func (f *fakeServer) forget() { f.do(func() { f.version++; f.compacted = f.version }) }

// count gives the number of requests that begin with a text such as "WATCH pods".
func (f *fakeServer) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	steps := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv, resource := schema.GroupVersion{Version: "v1"}, steps[2:]
	if steps[0] == "apis" {
		gv, resource = schema.GroupVersion{Group: steps[1], Version: steps[2]}, steps[3:]
	}
	query := r.URL.Query()
	f.mu.Lock()
	down, code := f.down, f.refuse[resource[0]]
	what := r.Method + " " + strings.Join(resource, "/")
	if r.Method == http.MethodGet {
		what = "LIST " + resource[0]
		if query.Get("watch") != "" {
			what = "WATCH " + resource[0]
		}
	}
	f.requests = append(f.requests, what+" "+query.Encode())
	f.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case code != 0:
		f.fail(w, apierrors.NewGenericServerResponse(code, r.Method, gv.WithResource(resource[0]).GroupResource(), "", "not today", 0, false))
	case len(resource) == 4 && r.Method == http.MethodGet: // one object in a namespace
		f.get(w, gv, resource[2], resource[1]+"/"+resource[3])
	case len(resource) > 1 && r.Method == http.MethodGet:
		f.get(w, gv, resource[0], "/"+resource[1])
	case r.Method == http.MethodPatch && resource[0] == "ippools":
		f.patchPool(w, r, gv, resource[1])
	case resource[0] == claimsName && r.Method != http.MethodGet:
		f.changeClaim(w, r, gv, resource[1:])
	case r.Method == http.MethodPatch && resource[0] == "nodes":
		f.patchNode(w, r, resource[1])
	case r.Method != http.MethodGet:
		body, _ := io.ReadAll(r.Body)
		f.do(func() { f.patches = append(f.patches, string(body)) })
		f.write(w, http.StatusOK, gv, &corev1.Event{})
	case query.Get("watch") != "":
		f.watch(w, r, gv, resource[0])
	default:
		f.list(w, r, gv, resource[0])
	}
}

// mediaType is that of the objects of a group.
func mediaType(gv schema.GroupVersion) string {
	if gv == v1alpha1.SchemeGroupVersion {
		return runtime.ContentTypeJSON
	}
	return runtime.ContentTypeProtobuf
}

// encode gives an object in the media type of its group.
func encode(gv schema.GroupVersion, o runtime.Object) []byte {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType(gv))
	data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, gv), o.DeepCopyObject()) // the encoder writes to it
	if err != nil {
		panic(err)
	}
	return data
}

func (f *fakeServer) write(w http.ResponseWriter, code int, gv schema.GroupVersion, o runtime.Object) {
	w.Header().Set("Content-Type", mediaType(gv))
	w.WriteHeader(code)
	_, _ = w.Write(encode(gv, o))
}

func (f *fakeServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	f.write(w, int(err.ErrStatus.Code), schema.GroupVersion{Version: "v1"}, &err.ErrStatus)
}

func (f *fakeServer) sorted(resource string) []runtime.Object {
	var keys []string
	for key := range f.objects[resource] {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var all []runtime.Object
	for _, key := range keys {
		all = append(all, f.objects[resource][key])
	}
	return all
}

func (f *fakeServer) list(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.sorted(name)
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	list := served[slices.IndexFunc(served, func(r resource) bool { return r.name == name })].empty.DeepCopyObject()
	m, _ := meta.ListAccessor(list)
	m.SetResourceVersion(strconv.Itoa(f.version))
	all = all[from:]
	if limit > 0 && len(all) > limit {
		all = all[:limit]
		m.SetContinue(strconv.Itoa(from + limit))
		if r.URL.Query().Get("labelSelector") == "" { // the real one does not count with a selector
			rest := int64(len(f.sorted(name)) - from - limit)
			m.SetRemainingItemCount(&rest)
		}
	}
	if err := meta.SetList(list, all); err != nil {
		panic(err)
	}
	f.write(w, http.StatusOK, gv, list)
}

func (f *fakeServer) watch(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, resource string) {
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial := query.Get("sendInitialEvents") == "true"
	f.mu.Lock()
	switch {
	case f.down: // since serve checked
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	case initial && f.old:
		f.mu.Unlock()
		f.fail(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	case !initial && from < f.compacted:
		f.mu.Unlock()
		f.fail(w, apierrors.NewResourceExpired("too old resource version"))
		return
	}
	w.Header().Set("Content-Type", mediaType(gv)+";stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	cut := f.cut
	var due []fakeEvent
	if initial {
		for _, o := range f.sorted(resource) {
			due = append(due, fakeEvent{0, watch.Added, o})
		}
		from = f.version
		end := served[slices.IndexFunc(served, func(r exampleOf) bool { return r.name == resource })].object.DeepCopyObject()
		m, _ := meta.Accessor(end)
		m.SetResourceVersion(strconv.Itoa(from))
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		due = append(due, fakeEvent{from, watch.Bookmark, end})
	}
	for {
		for _, e := range f.history[resource] {
			if e.version > from {
				due = append(due, e)
				from = e.version
			}
		}
		changed := f.changed
		f.mu.Unlock()
		for _, e := range due {
			writeFrame(w, gv, e)
		}
		w.(http.Flusher).Flush()
		due = nil
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-changed:
		}
		select {
		case <-cut:
			panic(http.ErrAbortHandler)
		default:
		}
		f.mu.Lock()
	}
}

// exampleOf is resource, where a variable has that name.
type exampleOf = resource

// writeFrame writes one event of a watch.
func writeFrame(w io.Writer, gv schema.GroupVersion, e fakeEvent) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType(gv))
	event := &metav1.WatchEvent{Type: string(e.kind), Object: runtime.RawExtension{Raw: encode(gv, e.object)}}
	var frame bytes.Buffer
	if err := info.StreamSerializer.Serializer.Encode(event, &frame); err != nil {
		panic(err)
	}
	_, _ = info.StreamSerializer.Framer.NewFrameWriter(w).Write(frame.Bytes())
}

// patchNode applies a strategic merge patch of a condition, or a merge patch of taints.
func (f *fakeServer) patchNode(w http.ResponseWriter, r *http.Request, name string) {
	body, _ := io.ReadAll(r.Body)
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Spec     *struct{ Taints []corev1.Taint }
		Status   struct{ Conditions []corev1.NodeCondition }
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		panic(err)
	}
	f.mu.Lock()
	old, there := f.objects["nodes"]["/"+name]
	f.patches = append(f.patches, string(body))
	f.mu.Unlock()
	if !there {
		f.fail(w, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name))
		return
	}
	node := old.DeepCopyObject().(*corev1.Node)
	if patch.Spec == nil {
		node.Status.Conditions = patch.Status.Conditions
	} else if patch.Metadata.ResourceVersion != node.ResourceVersion {
		f.fail(w, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, name, errors.New("it has changed")))
		return
	} else {
		node.Spec.Taints = patch.Spec.Taints
	}
	f.put(node)
	f.write(w, http.StatusOK, schema.GroupVersion{Version: "v1"}, node)
}
