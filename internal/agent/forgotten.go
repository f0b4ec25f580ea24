package agent

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// forgottenAfter is how long everything has to say that a pod is gone before the agent does what nobody's DEL has done. The slowest of runtimes
// takes minutes to delete a pod, and its DEL is for whatever is left by then.
const forgottenAfter = 10 * time.Minute

// forgotten finds endpoints of pods that are gone and for which neither DEL nor GC comes: the runtime has lost its state, or has given up.
// Most pods that vanish take their device along; these have a network namespace that something holds.
type forgotten struct {
	// since is when an endpoint, by its host device, was first found without a pod, as it has been at every look from then on.
	since map[string]time.Time
	// shown are directories that have shown a network namespace to this agent: that a file is missing there means something.
	shown map[string]bool
}

// look gives the host devices of endpoints that have been without a pod for long, with the reason. Pods are those of the cluster, nil where
// that cannot be known now.
func (f *forgotten) look(now time.Time, endpoints map[string]api.Endpoint, pods *clusterPods) map[string]string {
	if f.since == nil {
		f.since, f.shown = map[string]time.Time{}, map[string]bool{}
	}
	for _, e := range endpoints {
		if isNamespace(e.Netns) {
			f.shown[filepath.Dir(e.Netns)] = true
		}
	}
	over := map[string]string{}
	for name, e := range endpoints {
		reason := f.reason(e, pods)
		since, before := f.since[name]
		switch {
		case reason == "":
			delete(f.since, name)
		case !before:
			f.since[name] = now
		case now.Sub(since) >= forgottenAfter && now.Sub(e.Added) >= forgottenAfter:
			over[name] = reason
		}
	}
	for name := range f.since {
		if _, ok := endpoints[name]; !ok {
			delete(f.since, name)
		}
	}
	return over
}

// reason says why an endpoint seems to have no pod any more; empty if there may be one.
func (f *forgotten) reason(e api.Endpoint, pods *clusterPods) string {
	if f.shown[filepath.Dir(e.Netns)] && isMissing(e.Netns) {
		return "its network namespace has no name any more"
	}
	if pods != nil && madeByServer(e.Pod) && !pods.has(e.Pod) {
		return "the cluster has no such pod"
	}
	return ""
}

// madeByServer tells whether a pod was made by an API server, which then has it for as long as it is there, and has given it a UUID. The UID of a
// static pod is a checksum, digits only, and its mirror may be refused.
func madeByServer(pod api.PodRef) bool { return strings.Count(pod.UID, "-") == 4 }

// clusterPods are those of the cluster: by UID, and by name those that are not understood.
type clusterPods struct {
	uids   map[cluster.UID]bool
	unread map[cluster.Key]bool
}

func (p *clusterPods) has(pod api.PodRef) bool {
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
	pods := &clusterPods{make(map[cluster.UID]bool, len(a.snapshot.Pods)), map[cluster.Key]bool{}}
	for _, p := range a.snapshot.Pods {
		pods.uids[p.UID] = true
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
	for name, reason := range a.forgotten.look(time.Now(), a.endpoints, a.clusterPods()) {
		e := a.endpoints[name]
		a.log.Warn("endpoint is removed: no DEL has come for its pod", "pod", podName(e), "addresses", e.Addresses, "device", name, "reason", reason, "for", forgottenAfter)
		if err := a.remove(name); err != nil {
			a.log.Error("remove endpoint that was forgotten", "pod", podName(e), "error", err)
		}
	}
}

func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return path != "" && unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

func isMissing(path string) bool {
	var at unix.Stat_t
	return path != "" && errors.Is(unix.Lstat(path, &at), unix.ENOENT)
}
