package apiserver

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarks is how often a watch without events sends its position.
const bookmarks = time.Minute

// watch sends what happens after the version asked for, or, where initial events are asked for, what there is and
// then what happens, until the client goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, asked request, which selection) {
	query := r.URL.Query()
	version, _ := strconv.Atoi(query.Get("resourceVersion")) // none is from the beginning
	initial := query.Get("sendInitialEvents") == "true"

	s.mu.Lock()
	c := s.collection(asked.kind)
	var due []event
	if initial || version == 0 {
		version = s.version
		for _, o := range c.sorted() {
			due = append(due, event{version, watch.Added, o})
		}
	}
	s.mu.Unlock()

	w.Header().Set("Content-Type", asked.serializer.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	stream := &stream{w, asked}
	send := func(events []event) bool {
		for _, e := range events {
			if which.has(e.object) && stream.send(e.kind, e.object) != nil {
				return false
			}
		}
		return http.NewResponseController(w).Flush() == nil
	}
	if !send(due) || initial && stream.bookmark(version, true) != nil {
		return
	}
	pause := time.NewTicker(bookmarks)
	defer pause.Stop()
	for {
		s.mu.Lock()
		due, changed := slices.Clone(c.since(version)), s.changed
		version = s.version
		s.mu.Unlock()
		if len(due) > 0 && !send(due) { // most changes are those of other kinds
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-pause.C:
			if query.Get("allowWatchBookmarks") == "true" && stream.bookmark(version, false) != nil {
				return
			}
		}
	}
}

// stream is the answer to a watch.
type stream struct {
	w     http.ResponseWriter
	asked request
}

// send writes one event: what it is of, in the form asked for, inside of the event's own.
func (s *stream) send(kind watch.EventType, o runtime.Object) error {
	data, err := s.asked.encode(o)
	if err != nil {
		return fmt.Errorf("encode object: %w", err)
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: data}}
	form := s.asked.serializer.StreamSerializer
	var frame bytes.Buffer
	if err := form.Serializer.Encode(event, &frame); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	_, err = form.Framer.NewFrameWriter(s.w).Write(frame.Bytes())
	return err
}

// bookmark sends the position of the watch; end, that all initial events have been sent.
func (s *stream) bookmark(version int, end bool) error {
	o := s.asked.kind.object.DeepCopyObject()
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	m.SetResourceVersion(strconv.Itoa(version))
	if end {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if err := s.send(watch.Bookmark, o); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
