package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// world is what one call of Compile is about.
type world struct {
	snapshot   *cluster.Snapshot
	namespaces map[string]cluster.Labels
	// own are this node's addresses, pods those of this node, sorted.
	own  map[netip.Addr]bool
	pods []localPod
	// complaints are about these.
	complaints []Problem
}

// localPod is a pod of this node with its object; nil if there is none, or if it is not known.
type localPod struct {
	LocalPod
	object *cluster.Pod
	labels podLabels
}

func (c *Compiler) newWorld(snapshot *cluster.Snapshot, local *Local) *world {
	if c.namespaceLabels == nil || !cluster.Same(c.namespaces, snapshot.Namespaces) {
		c.namespaces, c.namespaceLabels = snapshot.Namespaces, make(map[string]cluster.Labels, len(snapshot.Namespaces))
		for _, n := range snapshot.Namespaces {
			c.namespaceLabels[n.Name] = n.Labels
		}
	}
	w := &world{snapshot: snapshot, namespaces: c.namespaceLabels, own: map[netip.Addr]bool{}}
	if n, found := snapshot.Node(c.node); found {
		for _, addr := range n.Addresses {
			w.own[addr.Unmap()] = true
		}
	}
	for _, addr := range local.Addresses {
		w.own[addr.Unmap()] = true
	}
	objects := c.localObjects(snapshot, local)
	for _, p := range local.Pods {
		pod := localPod{LocalPod: p, object: p.asObject(objects[p.Pod])}
		if pod.object != nil {
			pod.labels = w.labelsOf(pod.object)
		} else {
			pod.labels = podLabels{namespace: p.Pod.Namespace, ofNamespace: w.labelsOfNamespace(p.Pod.Namespace), unlabelled: !local.Unlabelled}
		}
		w.pods = append(w.pods, pod)
	}
	slices.SortStableFunc(w.pods, func(a, b localPod) int { return a.Pod.Compare(b.Pod) })
	return w
}

// localObjects gives the Pods that have the names of pods here; nil where there is none. They are looked for once, and again when they have changed:
// to find a hundred of 150,000 takes longer than the rest of most passes.
func (c *Compiler) localObjects(snapshot *cluster.Snapshot, local *Local) map[cluster.Key]*cluster.Pod {
	known := c.objects
	cluster.Differences(c.objectsOf, snapshot.Pods, func(before, after *cluster.Pod) {
		if before == nil {
			before = after
		}
		delete(known, before.Key())
	})
	c.objects, c.objectsOf = make(map[cluster.Key]*cluster.Pod, len(local.Pods)), snapshot.Pods
	for _, p := range local.Pods {
		object, isKnown := known[p.Pod]
		if !isKnown {
			object, _ = snapshot.Pods.Find(p.Pod)
		}
		c.objects[p.Pod] = object
	}
	return c.objects
}

func (w *world) labelsOf(pod *cluster.Pod) podLabels {
	return podLabels{namespace: pod.Namespace, ofNamespace: w.labelsOfNamespace(pod.Namespace), ofPod: pod.Labels}
}

// labelsOfNamespace gives the labels of a namespace. One without an object has the label that every namespace has.
func (w *world) labelsOfNamespace(name string) cluster.Labels {
	labels, known := w.namespaces[name]
	if !known {
		labels = cluster.NewLabels(map[string]string{corev1.LabelMetadataName: name})
		w.namespaces[name] = labels
	}
	return labels
}
