package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// policyPods are the pods here as policies have to know them, sorted by name.
func (a *Agent) policyPods() []policy.LocalPod {
	return policyPodsOf(slices.Collect(maps.Values(a.endpoints))...)
}

// policyPodsOf makes one pod of all interfaces of a pod. One that is made anew under its name before the end of the old one was noticed is
// another pod, with labels of its own. Where the runtime tells no UIDs they are one and have the labels of the cluster's Pod: a later sandbox of
// the same pod cannot be told from one of a later pod, and either address is governed as long as somebody has it.
func policyPodsOf(endpoints ...agentapi.Endpoint) []policy.LocalPod {
	type name struct {
		pod cluster.Key
		uid string
	}
	byName := map[name]policy.LocalPod{}
	for _, e := range endpoints {
		pod := policyPodOf(e)
		of := name{pod.Pod, pod.UID}
		pod.Addresses = slices.Concat(byName[of].Addresses, pod.Addresses)
		byName[of] = pod
	}
	all := make([]policy.LocalPod, 0, len(byName))
	for _, pod := range byName {
		slices.SortFunc(pod.Addresses, netip.Addr.Compare)
		all = append(all, pod)
	}
	slices.SortFunc(all, func(x, y policy.LocalPod) int { return cmp.Or(x.Pod.Compare(y.Pod), cmp.Compare(x.UID, y.UID)) })
	return all
}

// policyPodOf names an endpoint as policies do. One without a pod is in the namespace that objects without one are in.
func policyPodOf(e agentapi.Endpoint) policy.LocalPod {
	return policy.LocalPod{
		Pod: cluster.Key{Namespace: cmp.Or(e.Pod.Namespace, "default"), Name: lb.PodKey(e).Name}, UID: e.Pod.UID,
		Nameless: e.Pod.Name == "", Addresses: slices.Clone(e.Addresses),
	}
}
