package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// world is what one call of Compile is about.
type world struct {
	node       string
	snapshot   *cluster.Snapshot
	namespaces map[string]cluster.Labels
	// own are this node's addresses, pods those of this node, sorted.
	own  map[netip.Addr]bool
	pods []localPod
}

// localPod is a pod of this node with its object; nil if there is none, or if it is not known.
type localPod struct {
	LocalPod
	object *cluster.Pod
	labels podLabels
}

func newWorld(node string, snapshot *cluster.Snapshot, local *Local) *world {
	w := &world{node: node, snapshot: snapshot, namespaces: make(map[string]cluster.Labels, len(snapshot.Namespaces)), own: map[netip.Addr]bool{}}
	for _, n := range snapshot.Namespaces {
		w.namespaces[n.Name] = n.Labels
	}
	if n, found := snapshot.Node(node); found {
		for _, addr := range n.Addresses {
			w.own[addr.Unmap()] = true
		}
	}
	for _, addr := range local.Addresses {
		w.own[addr.Unmap()] = true
	}
	for _, p := range local.Pods {
		pod := localPod{LocalPod: p, object: p.Object(snapshot)}
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

// isLocal tells whether a pod is of this node under whatever UID: what this node says of its addresses holds. One that the cluster has on
// another node has come after the one of its name that is still here.
func (w *world) isLocal(pod *cluster.Pod) bool {
	if !mayBeOf(w.node, pod) {
		return false
	}
	_, found := slices.BinarySearchFunc(w.pods, pod.Key(), func(p localPod, key cluster.Key) int { return p.Pod.Compare(key) })
	return found
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
