package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// passInput is the input of one call of Compile.
type passInput struct {
	snapshot   *cluster.Snapshot
	namespaces map[string]cluster.Labels
	// own are this node's addresses, pods its pods, sorted.
	own  map[netip.Addr]bool
	pods []localPod
	// problems are those of the input.
	problems []Problem
}

// localPod is a pod of this node with its object; nil if there is none or it is unknown.
type localPod struct {
	LocalPod
	object *cluster.Pod
	labels podLabels
}

func (c *Compiler) newInput(snapshot *cluster.Snapshot, local *Local) *passInput {
	if c.namespaceLabels == nil || !cluster.Same(c.namespaces, snapshot.Namespaces) {
		c.namespaces, c.namespaceLabels = snapshot.Namespaces, make(map[string]cluster.Labels, len(snapshot.Namespaces))
		for _, n := range snapshot.Namespaces {
			c.namespaceLabels[n.Name] = n.Labels
		}
	}
	w := &passInput{snapshot: snapshot, namespaces: c.namespaceLabels, own: map[netip.Addr]bool{}}
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

// localObjects returns the Pods with the names of local pods; nil where there is none. It looks them up once and again after a
// change: to find a hundred of 150,000 takes longer than the rest of most passes.
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

func (w *passInput) labelsOf(pod *cluster.Pod) podLabels {
	return podLabels{namespace: pod.Namespace, ofNamespace: w.labelsOfNamespace(pod.Namespace), ofPod: pod.Labels}
}

// labelsOfNamespace returns the labels of a namespace. One without an object has the label that every namespace has.
func (w *passInput) labelsOfNamespace(name string) cluster.Labels {
	labels, known := w.namespaces[name]
	if !known {
		labels = cluster.NewLabels(map[string]string{corev1.LabelMetadataName: name})
		w.namespaces[name] = labels
	}
	return labels
}

// addAddresses records the addresses of a local pod. at has those of the previous pods.
func (w *passInput) addAddresses(i int, at map[netip.Addr]int) {
	pod := &w.pods[i]
	for _, addr := range pod.Addresses {
		other, taken := at[addr]
		switch {
		case w.own[addr]:
			w.addProblem("address %s of pod %s is this node's own; policies do not apply between pods and their node", addr, pod.Pod)
		case taken:
			w.addProblem("address %s is that of pod %s and of pod %s, both of this node", addr, w.pods[other].Pod, pod.Pod)
		default:
			at[addr] = i
		}
	}
}

func (w *passInput) addProblem(format string, args ...any) {
	w.problems = append(w.problems, Problem{Text: fmt.Sprintf(format, args...)})
}

// addProblem reports every address of a pod on another node that conflicts with the node, a local pod or another pod.
func (c *Compiler) addProblem(w *passInput) (problems []Problem) {
	p := &c.peers
	addProblem := func(format string, args ...any) {
		problems = append(problems, Problem{Text: fmt.Sprintf(format, args...)})
	}
	claimed := slices.Concat(slices.Collect(maps.Keys(w.own)), slices.Collect(maps.Keys(p.localAt)), slices.Collect(maps.Keys(p.contested)))
	slices.SortFunc(claimed, netip.Addr.Compare)
	for _, addr := range slices.Compact(claimed) {
		all := p.contested[addr]
		if pod := p.at[addr.As16()].pod; all == nil && pod != nil {
			all = []*cluster.Pod{pod}
		}
		local, isLocal := p.localAt[addr]
		for n, pod := range all {
			switch {
			case w.own[addr]:
				addProblem("address %s of pod %s is this node's own; policies treat it as the node", addr, pod.Key())
			case isLocal:
				addProblem("address %s is claimed by pod %s and is here that of pod %s", addr, pod.Key(), w.pods[local].Pod)
			case n > 0:
				addProblem("address %s is claimed by pods %s and %s; policies treat it as an unknown pod", addr, all[0].Key(), pod.Key())
			}
		}
	}
	return problems
}
