package endpoint

import (
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// forgottenAfter is how long a pod must be gone and silent before the agent removes its endpoint. The slowest
// runtimes take minutes to delete a pod, and their DEL may still come.
const forgottenAfter = 10 * time.Minute

// forgottenAtMost is how long it must be gone if it keeps sending: longer than any grace period of a force-deleted
// pod.
const forgottenAtMost = 24 * time.Hour

// forgottenPause is the longest time between two checks that count as continuous: a stopped agent saw nothing
// meanwhile.
const forgottenPause = 3 * time.Minute

// forgotten finds endpoints of deleted pods for which neither DEL nor GC comes: the runtime has lost its state, or
// has given up. Most deleted pods take their device along; these have a network namespace that something holds.
//
// It is not enough that the cluster does not have a pod. A force-deleted pod runs for its whole grace period, and one
// API server may not have another's newest state. Such a pod sends packets.
type forgotten struct {
	// silent are endpoints without a pod, by host device.
	silent map[string]silence
	last   time.Time
}

// silence is since when an endpoint has had no pod, and since when it has sent nothing beyond a number of packets.
// added identifies the endpoint of the device.
type silence struct {
	gone, since time.Time
	sent        uint64
	added       time.Time
}

// look gives the host devices of endpoints that have been without a pod, and silent, for long, or without a pod for
// very long. pods are those of the cluster, nil if unknown; sent gives the packets from a host device, false if
// unknown.
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
		if !e.Pod.MadeByServer() || pods.has(e.Pod) {
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

// clusterPods are the pods of the cluster: by UID those of this node's endpoints, and by name the invalid ones.
type clusterPods struct {
	uids   map[cluster.UID]bool
	unread map[cluster.Key]bool
}

func (p *clusterPods) has(pod agentapi.PodRef) bool {
	return p.uids[cluster.NewUID(pod.UID)] || p.unread[cluster.Key{Namespace: pod.Namespace, Name: pod.Name}]
}

// server is an API server, which may be unreachable.
type server interface {
	Outages() (count int, now bool)
	ObjectProblems() []cluster.ObjectProblem
}

// clusterPods gives the pods of the cluster; nil unless an API server has listed them all and is reachable now.
func (e *Endpoints) clusterPods(source cluster.Source, snapshot *cluster.Snapshot) *clusterPods {
	server, ok := source.(server)
	if !ok || snapshot == nil || snapshot.Unknown.Has(cluster.KindPod) {
		return nil
	}
	if _, out := server.Outages(); out {
		return nil
	}
	here := make(map[cluster.UID]bool, len(e.all))
	for _, p := range e.all {
		here[cluster.NewUID(p.Pod.UID)] = true
	}
	pods := &clusterPods{map[cluster.UID]bool{}, map[cluster.Key]bool{}}
	for p := range snapshot.Pods.All() {
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

// DropForgotten removes the endpoints of forgotten pods, with their devices, so that their addresses are free.
func (e *Endpoints) DropForgotten(source cluster.Source, snapshot *cluster.Snapshot) {
	for _, name := range e.forgotten.look(time.Now(), e.all, e.clusterPods(source, snapshot), e.packetsFrom) {
		p := e.all[name]
		e.Log.Warn("endpoint removed without a DEL: its pod does not exist in the cluster, and sends nothing or has been gone for a day",
			"pod", p.PodName(), "addresses", p.Addresses, "device", name)
		if err := e.remove(name); err != nil {
			e.Log.Error("remove endpoint without a DEL", "pod", p.PodName(), "error", err)
		}
	}
}
