package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy gives a copy that shares nothing with the original.
func (p *IPPool) DeepCopy() *IPPool {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	for _, list := range []*[]string{&c.Spec.Subnets, &c.Spec.Ranges, &c.Spec.Exclude, &c.Spec.Gateways} {
		*list = slices.Clone(*list)
	}
	c.Spec.Routes = slices.Clone(p.Spec.Routes)
	for _, selector := range []**metav1.LabelSelector{&c.Spec.NamespaceSelector, &c.Spec.PodSelector, &c.Spec.NodeSelector} {
		*selector = (*selector).DeepCopy()
	}
	if p.Spec.Probe != nil {
		own := *p.Spec.Probe
		c.Spec.Probe = &own
	}
	for _, counts := range []**IPPoolCounts{&c.Status.IPv4, &c.Status.IPv6} {
		if *counts != nil {
			own := **counts
			*counts = &own
		}
	}
	c.Status.Conditions = slices.Clone(p.Status.Conditions)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (p *IPPool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *IPPoolList) DeepCopyObject() runtime.Object {
	c := &IPPoolList{TypeMeta: l.TypeMeta, Items: make([]IPPool, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return c
}

// DeepCopy gives a copy that shares nothing with the original.
func (i *IPClaim) DeepCopy() *IPClaim {
	c := *i
	i.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if i.Status.Conflict != nil {
		own := *i.Status.Conflict
		c.Status.Conflict = &own
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (i *IPClaim) DeepCopyObject() runtime.Object { return i.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *IPClaimList) DeepCopyObject() runtime.Object {
	c := &IPClaimList{TypeMeta: l.TypeMeta, Items: make([]IPClaim, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return c
}
