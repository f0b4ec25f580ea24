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
	// Events come at most eventBurst at once and then one each eventInterval: who looks for what is wrong
	// is not helped by more, nor is the API server.
	eventBurst    = 10
	eventInterval = 30 * time.Second
	// eventQueue is how many wait to be sent; more are dropped.
	eventQueue = 50
	// eventMemory is how long an Event is counted up instead of being made again, a little less than the API server keeps it by
	// default. No more than eventsKept are remembered.
	eventMemory = 50 * time.Minute
	eventsKept  = 100
	// eventAttempts bounds how often an Event is sent to a server that does not take it.
	eventAttempts = 5
)

// events sends Events and counts up those that are sent again.
//
// The library's recorder does more of the same, but drags in the OpenAPI machinery for its patches: 2.5 MB of memory on each node.
type events struct {
	client *rest.RESTClient
	source corev1.EventSource
	log    *slog.Logger
	// limit is for Events about this node, objectLimit for those about objects of others, who may have many that are wrong: they are not to
	// push out what the node has to say of itself.
	limit, objectLimit *rate.Limiter
	queue              chan event
	sent               map[event]*sentEvent // only run uses it
}

// event is what makes two Events the same.
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

// add has an Event sent, if not too many are waiting.
func (e *events) add(ev event) {
	limit := e.objectLimit
	if ev.about.Kind == "Node" && ev.about.Name == e.source.Host {
		limit = e.limit
	}
	if !limit.Allow() {
		e.log.Debug("event not sent, there are too many", "message", ev.message)
		return
	}
	select {
	case e.queue <- ev:
	default:
		e.log.Debug("event not sent, too many are waiting", "message", ev.message)
	}
}

// run sends Events until ctx ends. pause waits after so many failed attempts.
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

// send makes an Event or counts it up.
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
		namespace = metav1.NamespaceDefault // where Events about objects without a namespace are looked for
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

// remember notes a new Event and forgets the oldest one if there are too many.
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
