package apiserver

import (
	"cmp"
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
	"k8s.io/utils/lru"

	"github.com/beeline-cni/beeline/internal/cluster"
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
	sent               *lru.Cache // *sentEvent by event; only run uses it
}

// event has the fields by which two Events are the same.
type event struct {
	cluster.ObjectProblem
	reason string
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
		sent:        lru.New(eventsKept),
	}
}

// add queues an Event, unless the queue or the rate limit is exhausted.
func (e *events) add(ev event) {
	limit := e.objectLimit
	if ev.Kind == cluster.KindNode && ev.Key.Name == e.source.Host {
		limit = e.limit
	}
	if !limit.Allow() {
		e.log.Debug("event dropped: rate limit", "message", ev.Text)
		return
	}
	select {
	case e.queue <- ev:
	default:
		e.log.Debug("event dropped: queue full", "message", ev.Text)
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
					e.log.Warn("event is not sent", "message", ev.Text, "error", err)
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
	if known, found := e.sent.Get(ev); found && now.Sub(known.(*sentEvent).last) < eventMemory {
		before := known.(*sentEvent)
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
	namespace := cmp.Or(ev.Key.Namespace, metav1.NamespaceDefault) // also of Events about cluster-scoped objects
	at := metav1.NewTime(now)
	made := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", ev.Key.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			Kind: string(ev.Kind), APIVersion: apiVersion(ev.Kind), Namespace: ev.Key.Namespace, Name: ev.Key.Name, UID: types.UID(ev.UID),
		},
		Reason:         ev.reason,
		Message:        ev.Text,
		Type:           corev1.EventTypeWarning,
		Source:         e.source,
		FirstTimestamp: at,
		LastTimestamp:  at,
		Count:          1,
	}
	if err := e.client.Post().Namespace(namespace).Resource("events").Body(made).Do(ctx).Error(); err != nil {
		return fmt.Errorf("make event: %w", err)
	}
	e.sent.Add(ev, &sentEvent{namespace, made.Name, 1, now})
	return nil
}
