package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// patchInterval is the least time between two patches of the condition, in case another client writes it as well.
const patchInterval = 2 * time.Second

// Reporter reports this node's state to the API server: the condition NetworkUnavailable of its Node, a taint, and
// Events. It sends nothing while nothing changes.
type Reporter struct {
	connection *connection
	client     *rest.RESTClient
	nodeName   string
	source     *Source
	log        *slog.Logger
	interval   time.Duration

	events *events

	wake chan struct{} // capacity 1: wanted has changed
	mu   sync.Mutex
	// wanted is the desired condition; nil until Available is called.
	wanted *Condition
}

func newReporter(c *connection, nodeName string, source *Source, log *slog.Logger) *Reporter {
	client := c.clients[corev1.SchemeGroupVersion]
	return &Reporter{
		connection: c,
		client:     client,
		nodeName:   nodeName,
		source:     source,
		log:        log,
		interval:   patchInterval,
		events:     newEvents(client, nodeName, log),
		wake:       make(chan struct{}, 1),
	}
}

// Available sets whether pods of this node can have a network, with a CamelCase reason and a sentence. Run reports it
// to the server.
func (r *Reporter) Available(available bool, reason, message string) {
	status := corev1.ConditionTrue
	if available {
		status = corev1.ConditionFalse // the condition is that the network is unavailable
	}
	r.mu.Lock()
	r.wanted = &Condition{Status: string(status), Reason: reason, Message: message}
	r.mu.Unlock()
	wake(r.wake)
}

// NodeEvent sends a warning Event about this node.
func (r *Reporter) NodeEvent(reason, message string) {
	// The UID is the name, as in the kubelet's Events; `kubectl describe node` looks for that.
	r.events.add(event{corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: r.nodeName, UID: types.UID(r.nodeName)}, reason, message})
}

// PodEvent sends a warning Event about a pod.
func (r *Reporter) PodEvent(namespace, name, uid, reason, message string) {
	r.events.add(event{corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: types.UID(uid)}, reason, message})
}

// PolicyEvent sends a warning Event about a NetworkPolicy.
func (r *Reporter) PolicyEvent(namespace, name, uid, reason, message string) {
	r.events.add(event{corev1.ObjectReference{
		Kind: "NetworkPolicy", APIVersion: networkingv1.SchemeGroupVersion.String(), Namespace: namespace, Name: name, UID: types.UID(uid),
	}, reason, message})
}

// groupVersions are those of the kinds that Events are about.
var groupVersions = map[cluster.Kind]string{
	cluster.KindEndpointSlice: discoveryv1.SchemeGroupVersion.String(), cluster.KindNetworkPolicy: networkingv1.SchemeGroupVersion.String(),
}

// ObjectEvent sends a warning Event about an object of any kind.
func (r *Reporter) ObjectEvent(kind cluster.Kind, namespace, name, uid, reason, message string) {
	version := groupVersions[kind]
	if version == "" {
		version = "v1"
	}
	r.events.add(event{corev1.ObjectReference{Kind: string(kind), APIVersion: version, Namespace: namespace, Name: name, UID: types.UID(uid)}, reason, message})
}

// Run reports to the server until ctx ends. It retries what fails.
func (r *Reporter) Run(ctx context.Context) error {
	var events sync.WaitGroup
	defer events.Wait()
	events.Go(func() { r.events.run(ctx, r.source.pause) })
	for failed := 0; ; {
		if err := r.sync(ctx); err != nil && ctx.Err() == nil {
			r.source.answered(requestPatch, err)
			if !r.source.pause(ctx, failed) {
				return nil
			}
			failed++
			continue
		}
		if failed > 0 {
			// The failure is over: the object has the condition without a successful response, or is deleted.
			r.source.clear(requestPatch)
			failed = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-r.source.ownChanged:
		}
	}
}

// sync writes the condition if the node's object has another one. Without an object it does nothing.
func (r *Reporter) sync(ctx context.Context) error {
	own, wanted := r.source.own(), r.condition()
	if own == nil || wanted == nil {
		return nil
	}
	patched := false
	if own.condition != *wanted {
		if err := r.patch(ctx, own, *wanted); err != nil {
			return ifThere(err)
		}
		own, patched = r.source.own(), true
	}
	if own != nil && isTainted(own.taints) != isUnavailable(*wanted) {
		if err := r.patchTaint(ctx, own, isUnavailable(*wanted)); err != nil {
			return ifThere(err)
		}
		patched = true
	}
	if patched {
		sleep(ctx, r.interval)
	}
	return nil
}

// ifThere is nil for a Node that was deleted or has changed: the watch reports that.
func ifThere(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// requestPatch names the request in messages.
const requestPatch = "to patch the status or the taints of this node"

func (r *Reporter) condition() *Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// patch writes the condition on the object, whose last state is before.
func (r *Reporter) patch(ctx context.Context, before *ownNode, wanted Condition) error {
	now := metav1.Now().UTC().Format(time.RFC3339)
	condition := map[string]string{
		"type": string(corev1.NodeNetworkUnavailable), "status": wanted.Status, "reason": wanted.Reason, "message": wanted.Message, "lastHeartbeatTime": now,
	}
	if before.condition.Status != wanted.Status {
		condition["lastTransitionTime"] = now
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return fmt.Errorf("encode node condition: %w", err)
	}
	var node corev1.Node
	err = r.client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(r.nodeName).SubResource("status").Body(body).Do(ctx).Into(&node)
	if err != nil {
		return fmt.Errorf("patch condition of node %s: %w", r.nodeName, err)
	}
	r.source.answered(requestPatch, nil)
	r.source.setOwn(before, readOwn(&node))
	r.log.Info("node condition written", "type", corev1.NodeNetworkUnavailable, "status", wanted.Status, "reason", wanted.Reason)
	return nil
}
