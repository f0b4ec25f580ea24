package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// WriteStatus writes the status of an IPPool. The answer to the counts has the conditions, which are written only when
// they change: their times say since when.
func (c *Claims) WriteStatus(ctx context.Context, s cluster.IPPoolStatus) error {
	now := v1alpha1.IPPoolStatus{IPv4: countsOf(s.IPv4), IPv6: countsOf(s.IPv6)}
	for _, of := range []*v1alpha1.IPPoolCounts{now.IPv4, now.IPv6} {
		if of != nil && (of == now.IPv4 || now.IPv4 == nil || of.Free < now.Free) {
			now.Total, now.Allocated, now.Free = of.Total, of.Allocated, of.Free
		}
	}
	var pool v1alpha1.IPPool
	if err := c.patchStatus(ctx, s, map[string]any{
		"total": now.Total, "allocated": now.Allocated, "free": now.Free, "ipv4": now.IPv4, "ipv6": now.IPv6,
	}, &pool); err != nil {
		return err
	}
	before := pool.DeepCopy().Status.Conditions
	for _, condition := range conditionsOf(s) {
		condition.ObservedGeneration = pool.Generation
		meta.SetStatusCondition(&pool.Status.Conditions, condition)
	}
	if equality.Semantic.DeepEqual(before, pool.Status.Conditions) {
		return nil
	}
	return c.patchStatus(ctx, s, map[string]any{"conditions": pool.Status.Conditions}, &pool)
}

func (c *Claims) patchStatus(ctx context.Context, s cluster.IPPoolStatus, status map[string]any, into *v1alpha1.IPPool) error {
	patch := map[string]any{"status": status}
	if s.UID != "" {
		patch["metadata"] = map[string]any{"uid": s.UID} // not the status of another pool that has the name now
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode status of IPPool %s: %w", s.Name, err)
	}
	if err := c.client.Patch(types.MergePatchType).MaxRetries(0).Resource("ippools").Name(s.Name).SubResource("status").Body(body).Do(ctx).Into(into); err != nil {
		return fmt.Errorf("patch status of IPPool %s: %w", s.Name, err)
	}
	return nil
}

func countsOf(c *cluster.IPPoolCounts) *v1alpha1.IPPoolCounts {
	if c == nil {
		return nil
	}
	return &v1alpha1.IPPoolCounts{Total: c.Total, Allocated: c.Allocated, Free: c.Free, Conflicts: c.Conflicts}
}

// conditionsOf gives all conditions of a pool.
func conditionsOf(s cluster.IPPoolStatus) []metav1.Condition {
	condition := func(of string, is bool, reason, otherwise, message string) metav1.Condition {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		if message == "" {
			reason = otherwise
		}
		return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message}
	}
	exhausted := s.Exhausted()
	return []metav1.Condition{
		condition(v1alpha1.ConditionValid, s.Invalid == "", "InvalidSpec", "SpecIsValid", s.Invalid),
		condition(v1alpha1.ConditionExhausted, exhausted != "", "NoFreeAddress", "AddressesAreFree", exhausted),
		condition(v1alpha1.ConditionOverlapping, s.Overlaps != "", "AddressesOfOthers", "NoOverlap", s.Overlaps),
	}
}
