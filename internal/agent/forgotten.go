package agent

import (
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device"
)

// forgottenAfter is for how long a pod has to be gone and silent before the agent does what no DEL has done. The slowest of runtimes takes minutes
// to delete a pod, and its DEL is for whatever is left by then.
const forgottenAfter = 10 * time.Minute

// forgottenAtMost is for how long it has to be gone if it goes on sending: longer than anybody lets a pod that was deleted by force end by itself.
const forgottenAtMost = 24 * time.Hour

// forgottenPause is the longest time between two looks that count as one stretch of time: an agent that was stopped has seen nothing meanwhile.
const forgottenPause = 3 * time.Minute

// forgotten finds endpoints of pods that are gone and for which neither DEL nor GC comes: the runtime has lost its state, or has given up.
// Most pods that vanish take their device along; these have a network namespace that something holds.
//
// That the cluster does not have a pod is not enough: one that was deleted by force runs on for as long as its grace period lasts, and
// an API server may not know yet what another one does. Such a pod sends packets.
type forgotten struct {
	// silent are endpoints without a pod, by their host devices.
	silent map[string]silence
	last   time.Time
}

// silence is since when an endpoint has had no pod, and since when it has also sent nothing, having sent so many packets before. added is which
// endpoint of that device it is.
type silence struct {
	gone, since time.Time
	sent        uint64
	added       time.Time
}

// look gives the host devices of endpoints that have been without a pod, and silent, for long, or without a pod for very long. Pods are those of the cluster, nil where
// that cannot be known now; sent is how many packets have come from behind a host device, false where that cannot be known.
func (f *forgotten) look(now time.Time, endpoints map[string]agentapi.Endpoint, pods *clusterPods, sent func(device string) (uint64, bool)) (over []string) {
	before := f.silent
	if now.Sub(f.last) > forgottenPause {
		before = nil
	}
	f.silent, f.last = map[string]silence{}, now
	if pods == nil {
		return nil
	}
	for name, e := range endpoints {
		if !madeByServer(e.Pod) || pods.has(e.Pod) {
			continue
		}
		packets, ok := sent(name)
		if !ok {
			continue
		}
		s, known := before[name]
		if !known || !s.added.Equal(e.Added) {
			s = silence{now, now, packets, e.Added}
		}
		if s.sent != packets {
			s.since, s.sent = now, packets
		}
		f.silent[name] = s
		if now.Sub(s.since) >= forgottenAfter || now.Sub(s.gone) >= forgottenAtMost {
			over = append(over, name)
		}
	}
	return over
}

// madeByServer tells whether a pod was made by an API server, which then has it for as long as it is there, and has given it a UUID. The UID of a
// static pod is a checksum, digits only, unless its manifest says another one, and its mirror may be refused.
func madeByServer(pod agentapi.PodRef) bool { return strings.Count(pod.UID, "-") == 4 }

// clusterPods are those of the cluster: by UID those of this node's endpoints, and by name those that are not understood.
type clusterPods struct {
	uids   map[cluster.UID]bool
	unread map[cluster.Key]bool
}

func (p *clusterPods) has(pod agentapi.PodRef) bool {
	return p.uids[cluster.NewUID(pod.UID)] || p.unread[cluster.Key{Namespace: pod.Namespace, Name: pod.Name}]
}

// clusterPods gives the pods of the cluster; nil unless an API server has told them all and can be reached now. The lock is held.
func (a *Agent) clusterPods() *clusterPods {
	server, ok := a.source.(remote)
	if !ok || a.snapshot == nil || a.snapshot.Unknown.Has(cluster.KindPod) {
		return nil
	}
	if _, out := server.Outages(); out {
		return nil
	}
	here := make(map[cluster.UID]bool, len(a.endpoints))
	for _, e := range a.endpoints {
		here[cluster.NewUID(e.Pod.UID)] = true
	}
	pods := &clusterPods{map[cluster.UID]bool{}, map[cluster.Key]bool{}}
	for p := range a.snapshot.Pods.All() {
		if here[p.UID] {
			pods.uids[p.UID] = true
		}
	}
	for _, p := range server.ObjectProblems() {
		if p.Kind == cluster.KindPod {
			pods.unread[p.Key] = true
		}
	}
	return pods
}

// dropForgotten removes the endpoints of pods that the runtime has forgotten, with their devices: addresses are free when nobody has them.
func (a *Agent) dropForgotten() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.forgotten.look(time.Now(), a.endpoints, a.clusterPods(), device.Pods.PacketsFrom) {
		e := a.endpoints[name]
		a.log.Warn("endpoint is removed: no DEL has come for its pod, which the cluster does not have and which sends nothing, or has been gone for a day",
			"pod", e.PodName(), "addresses", e.Addresses, "device", name)
		if err := a.remove(name); err != nil {
			a.log.Error("remove endpoint that was forgotten", "pod", e.PodName(), "error", err)
		}
	}
}
