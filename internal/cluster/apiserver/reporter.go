package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// wanted is the desired condition; nil until Available is called.
	wanted atomic.Pointer[Condition]
	// announced is what the annotations have to say; nil until Announce is called.
	announced atomic.Pointer[cluster.Announced]
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
	r.wanted.Store(&Condition{Status: string(status), Reason: reason, Message: message})
	wake(r.wake)
}

// Announce sets what this node tells the others. Run writes it to the Node.
func (r *Reporter) Announce(announced cluster.Announced) {
	if before := r.announced.Swap(&announced); before == nil || *before != announced {
		wake(r.wake)
	}
}

// NodeEvent sends a warning Event about this node.
func (r *Reporter) NodeEvent(reason, message string) {
	// The UID is the name, as in the kubelet's Events; `kubectl describe node` looks for that.
	r.ObjectEvent(reason, cluster.ObjectProblem{Kind: cluster.KindNode, Key: cluster.Key{Name: r.nodeName}, UID: r.nodeName, Text: message})
}

// ObjectEvent sends a warning Event about an object.
func (r *Reporter) ObjectEvent(reason string, problem cluster.ObjectProblem) {
	r.events.add(event{problem, reason})
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
	own, wanted, announced := r.source.own(), r.wanted.Load(), r.announced.Load()
	patched := false
	if own != nil && announced != nil && own.announced != *announced {
		if err := r.patchAnnotations(ctx, own, *announced); err != nil {
			return ifThere(err)
		}
		own, patched = r.source.own(), true
	}
	if own == nil || wanted == nil {
		return nil
	}
	if own.condition != *wanted {
		if err := r.patchCondition(ctx, own, *wanted); err != nil {
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
const requestPatch = "to patch the status, the taints or the annotations of this node"

// patchCondition writes the condition on the object, whose last state is before.
func (r *Reporter) patchCondition(ctx context.Context, before *ownNode, wanted Condition) error {
	now := metav1.Now().UTC().Format(time.RFC3339)
	condition := map[string]string{
		"type": string(corev1.NodeNetworkUnavailable), "status": wanted.Status, "reason": wanted.Reason, "message": wanted.Message, "lastHeartbeatTime": now,
	}
	if before.condition.Status != wanted.Status {
		condition["lastTransitionTime"] = now
	}
	patch := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
	if err := r.patch(ctx, before, types.StrategicMergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("patch condition of node %s: %w", r.nodeName, err)
	}
	r.log.Info("node condition written", "type", corev1.NodeNetworkUnavailable, "status", wanted.Status, "reason", wanted.Reason)
	return nil
}

// patchTaint adds the taint to the object or removes it. A patch replaces all taints; the resource version keeps it
// from overwriting those of another client.
func (r *Reporter) patchTaint(ctx context.Context, before *ownNode, tainted bool) error {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": before.version},
		"spec":     map[string]any{"taints": withTaint(before.taints, tainted)},
	}
	if err := r.patch(ctx, before, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("patch taints of node %s: %w", r.nodeName, err)
	}
	r.log.Info("node taint written", "key", NotReadyTaint, "present", tainted)
	return nil
}

// patchAnnotations writes the annotations that differ, or removes them.
func (r *Reporter) patchAnnotations(ctx context.Context, before *ownNode, announced cluster.Announced) error {
	has, annotations := before.announced.Annotations(), map[string]any{}
	for name, value := range announced.Annotations() {
		switch {
		case value == "" && has[name] != "":
			annotations[name] = nil // null removes it
		case value != has[name]:
			annotations[name] = value
		}
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if err := r.patch(ctx, before, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("patch annotations of node %s: %w", r.nodeName, err)
	}
	r.log.Info("annotations written to the node", "annotations", annotations)
	return nil
}

// patch patches the object, whose last state is before, and takes the response as its state.
func (r *Reporter) patch(ctx context.Context, before *ownNode, kind types.PatchType, patch any, subresource ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	var node corev1.Node
	if err := r.client.Patch(kind).Resource("nodes").Name(r.nodeName).SubResource(subresource...).Body(body).Do(ctx).Into(&node); err != nil {
		return err
	}
	r.source.answered(requestPatch, nil)
	r.source.setOwn(before, readOwn(&node))
	return nil
}
