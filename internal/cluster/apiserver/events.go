package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	// At most eventBurst Events are sent at once, then one per eventInterval: more would not help whoever
	// investigates, nor the API server.
	eventBurst    = 10
	eventInterval = 30 * time.Second
	// eventQueue is how many Events may wait; further ones are dropped.
	eventQueue = 50
	// eventMemory is how long a repeated Event increments the count of the first one. The API server keeps Events a
	// little longer by default. At most eventsKept are remembered.
	eventMemory = 50 * time.Minute
	eventsKept  = 100
	// eventAttempts bounds how often sending one Event is tried.
	eventAttempts = 5
)

// events sends Events and increments the count of repeated ones.
//
// The library's recorder does the same and more, but pulls in the OpenAPI machinery for its patches: 2.5 MB of memory
// on each node.
type events struct {
	client *rest.RESTClient
	source corev1.EventSource
	log    *slog.Logger
	// limit is for Events about this node, objectLimit for Events about other objects. They are separate so that many
	// wrong objects do not suppress Events about the node.
	limit, objectLimit *rate.Limiter
	queue              chan event
	sent               map[event]*sentEvent // only run uses it
}

// event has the fields by which two Events are the same.
type event struct {
	about           corev1.ObjectReference
	reason, message string
}

// sentEvent is an Event that the server has.
type sentEvent struct {
	namespace, name string
	count           int32
	last            time.Time
}

func newEvents(client *rest.RESTClient, nodeName string, log *slog.Logger) *events {
	return &events{
		client:      client,
		source:      corev1.EventSource{Component: "beeline", Host: nodeName},
		log:         log,
		limit:       rate.NewLimiter(rate.Every(eventInterval), eventBurst),
		objectLimit: rate.NewLimiter(rate.Every(eventInterval), eventBurst),
		queue:       make(chan event, eventQueue),
		sent:        map[event]*sentEvent{},
	}
}

// add queues an Event, unless the queue or the rate limit is exhausted.
func (e *events) add(ev event) {
	limit := e.objectLimit
	if ev.about.Kind == "Node" && ev.about.Name == e.source.Host {
		limit = e.limit
	}
	if !limit.Allow() {
		e.log.Debug("event dropped: rate limit", "message", ev.message)
		return
	}
	select {
	case e.queue <- ev:
	default:
		e.log.Debug("event dropped: queue full", "message", ev.message)
	}
}

// run sends Events until ctx ends. pause waits between failed attempts.
func (e *events) run(ctx context.Context, pause func(ctx context.Context, failed int) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-e.queue:
			for failed := 0; ; failed++ {
				err := e.send(ctx, ev, time.Now())
				if err == nil || ctx.Err() != nil {
					break
				}
				if failed+1 == eventAttempts || !mayPass(err) {
					e.log.Warn("event is not sent", "message", ev.message, "error", err)
					break
				}
				if !pause(ctx, failed) {
					return
				}
			}
		}
	}
}

// send creates an Event, or increments the count of an earlier one.
func (e *events) send(ctx context.Context, ev event, now time.Time) error {
	if before := e.sent[ev]; before != nil && now.Sub(before.last) < eventMemory {
		body := fmt.Sprintf(`{"count":%d,"lastTimestamp":%q}`, before.count+1, now.UTC().Format(time.RFC3339))
		err := e.client.Patch(types.MergePatchType).Namespace(before.namespace).Resource("events").Name(before.name).Body([]byte(body)).Do(ctx).Error()
		if err == nil {
			before.count++
			before.last = now
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("count event up: %w", err)
		}
	}
	namespace := ev.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // namespace of Events about cluster-scoped objects
	}
	at := metav1.NewTime(now)
	made := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", ev.about.Name, now.UnixNano())},
		InvolvedObject: ev.about,
		Reason:         ev.reason,
		Message:        ev.message,
		Type:           corev1.EventTypeWarning,
		Source:         e.source,
		FirstTimestamp: at,
		LastTimestamp:  at,
		Count:          1,
	}
	if err := e.client.Post().Namespace(namespace).Resource("events").Body(made).Do(ctx).Error(); err != nil {
		return fmt.Errorf("make event: %w", err)
	}
	e.remember(ev, &sentEvent{namespace, made.Name, 1, now})
	return nil
}

// remember keeps a new Event and drops the oldest one beyond the limit.
func (e *events) remember(ev event, as *sentEvent) {
	if len(e.sent) >= eventsKept {
		var oldest event
		first := as.last
		for known, sent := range e.sent {
			if sent.last.Before(first) {
				oldest, first = known, sent.last
			}
		}
		delete(e.sent, oldest)
	}
	e.sent[ev] = as
}
