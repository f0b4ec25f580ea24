package endpoint

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// BandwidthChanges reports whether the annotations of a pod have other limits than before. FollowBandwidth finds the other differences, such
// as those where it has failed, with the next reconciliation.
func (e *Endpoints) BandwidthChanges(before, now cluster.List[*cluster.Pod]) bool {
	for _, p := range e.all {
		had, _ := annotated(p, before)
		if want, _ := annotated(p, now); want != had {
			return true
		}
	}
	return false
}

// FollowBandwidth makes the limits of pods those of their annotations, and calls failed for each pod where that fails.
func (e *Endpoints) FollowBandwidth(pods cluster.List[*cluster.Pod], failed func(agentapi.Endpoint, error)) {
	for name, p := range e.all {
		want, known := annotated(p, pods)
		if !known || want == p.Bandwidth {
			continue
		}
		if p.Macvlan != nil {
			failed(p, errors.New("its macvlan device has no limits: make the pod anew"))
			continue
		}
		e.Log.Info("pod has new bandwidth limits, in bit/s", "pod", p.PodName(), "egress", want.Egress, "ingress", want.Ingress)
		p.Bandwidth = want
		if err := e.limit(p); err != nil {
			failed(p, err)
			continue
		}
		e.all[name] = p
		if err := e.store.save(p); err != nil {
			failed(p, err)
		}
	}
}

// limit applies the limits of a pod whose addresses are in the table.
func (e *Endpoints) limit(p agentapi.Endpoint) error {
	if err := e.Limits.Apply(p); err != nil {
		return err
	}
	for _, addr := range p.Addresses {
		if err := e.Datapath.Endpoints.Set(addr, node.EndpointEntry(p)); err != nil {
			return err
		}
	}
	return nil
}

// annotatedInterface is the pod's interface that its annotations limit, as runtimes name the first one. Others have the limits of their
// ADD, which plugins such as Multus take from elsewhere.
const annotatedInterface = "eth0"

// annotated gives the limits by a pod's annotations. Without UIDs, a Pod may be another one than that of the runtime: it keeps the
// limits of its ADD. A pod with an invalid annotation keeps those that it has.
func annotated(p agentapi.Endpoint, pods cluster.List[*cluster.Pod]) (limits agentapi.Bandwidth, known bool) {
	pod, found := pods.Find(cluster.Key{Namespace: p.Pod.Namespace, Name: p.Pod.Name})
	uid := cluster.NewUID(p.Pod.UID)
	if !found || uid == (cluster.UID{}) || pod.UID != uid || p.IfName != annotatedInterface {
		return limits, false
	}
	if pod.Bandwidth == nil {
		return limits, true
	}
	return agentapi.Bandwidth{Egress: pod.Bandwidth.Egress, Ingress: pod.Bandwidth.Ingress}, !pod.Bandwidth.Invalid
}
