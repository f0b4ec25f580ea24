package node

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// In a large cluster nodes change all the time. Routes of the other nodes do not depend on each other, so those of
// changed nodes are written at once and without reading; a reconciliation of all nodes follows when it is due.

// nodesAtOnce is how many nodes may change in a step.
const nodesAtOnce = 100

// Step is what to do when other nodes are added, removed or changed.
type Step struct {
	// Set and Del are routes of the datapath. Nested says that a route of Set may contain another route, or be
	// contained in one.
	Set    map[netip.Prefix]fwd.Route
	Del    []netip.Prefix
	Nested bool
	// Add and Over are kernel routes to add and to delete.
	Add, Over []route.Route
	// Gone and Come are removed and added nodes, for status.
	Gone, Come []agentapi.RemoteNode
}

// Kept gives the facts that remain valid until the next reconciliation.
func (f Facts) Kept() *Facts {
	f.Snapshot = &cluster.Snapshot{Nodes: f.Snapshot.Nodes}
	f.Routes, f.Neighbours = route.Table{}, nil
	return &f
}

// Take updates the desired state with a completed step.
func (d *Desired) Take(step Step) {
	maps.Copy(d.Routes, step.Set)
	for _, p := range step.Del {
		delete(d.Routes, p)
	}
	byName := func(n, other agentapi.RemoteNode) int { return strings.Compare(n.Name, other.Name) }
	nodes := d.Nodes
	for _, n := range step.Gone {
		if at, found := slices.BinarySearchFunc(nodes, n, byName); found {
			nodes = slices.Delete(nodes, at, at+1)
		}
	}
	for _, n := range step.Come {
		at, _ := slices.BinarySearchFunc(nodes, n, byName)
		nodes = slices.Insert(nodes, at, n)
	}
	d.Nodes = nodes
}

// StepTo gives the step if only other nodes have changed. ok is false if more than their routes may change, or if
// their prefixes overlap with others.
func (f Facts) StepTo(now Facts, current Desired) (step Step, ok bool) {
	before, after, sameSelf := differentNodes(f.Snapshot.Nodes, now.Snapshot.Nodes, f.Config.NodeName)
	if !sameSelf || len(before)+len(after) > nodesAtOnce || f.Uplink == nil || f.Unknown || f.Recovered+len(f.Claims)+len(now.Claims) > 0 || !f.sameTunnel(now) {
		return step, false
	}
	if f.someKeyIsWrong() || now.someKeyIsWrong() {
		return step, false // what is wrong with a key may depend on any other node's
	}
	gone, come, own := f.ofNodes(before), now.ofNodes(after), now.ofSelf()
	if len(gone.Problems)+len(come.Problems) > 0 || come.TunnelRules && !current.TunnelRules {
		return step, false
	}
	step = Step{Set: map[netip.Prefix]fwd.Route{}, Gone: gone.Nodes, Come: come.Nodes}
	for p, route := range come.Routes {
		was, had := gone.Routes[p]
		if _, taken := current.Routes[p]; taken != had {
			return step, false
		}
		if was != route || !had {
			step.Set[p] = route
		}
		step.Nested = step.Nested || !had && current.overlaps(p)
	}
	for p := range gone.Routes {
		if _, stays := come.Routes[p]; stays {
			continue
		}
		if _, isOwn := own.Routes[p]; isOwn {
			return step, false
		}
		step.Del = append(step.Del, p)
	}
	step.Add, step.Over = routesWithout(come.KernelRoutes, gone.KernelRoutes, func(a, b route.Route) bool { return a == b }),
		routesWithout(gone.KernelRoutes, come.KernelRoutes, func(a, b route.Route) bool { return a.Prefix == b.Prefix && a.Table == b.Table })
	return step, true
}

// routesWithout gives the routes that are not among others.
func routesWithout(all, others []route.Route, same func(a, b route.Route) bool) (rest []route.Route) {
	for _, r := range all {
		if !slices.ContainsFunc(others, func(o route.Route) bool { return same(r, o) }) {
			rest = append(rest, r)
		}
	}
	return rest
}

// overlaps reports whether a prefix contains another route, or is contained in one.
func (d *Desired) overlaps(p netip.Prefix) bool {
	for other := range d.Routes {
		if other != p && other.Overlaps(p) {
			return true
		}
	}
	return false
}

// sameTunnel reports whether both sets of nodes need the same tunnel device and the same MTU of pods.
func (f Facts) sameTunnel(now Facts) bool {
	spec, needed := f.TunnelSpec()
	nowSpec, nowNeeded := now.TunnelSpec()
	return needed == nowNeeded && (!needed || f.Tunnel.Index != 0) && reflect.DeepEqual(spec, nowSpec) && f.podMTUMax() == now.podMTUMax()
}

// ofNodes is the desired state for some other nodes.
func (f Facts) ofNodes(nodes []cluster.Node) Desired {
	d := Desired{Routes: map[netip.Prefix]fwd.Route{}}
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	for _, n := range nodes {
		d.addNode(n, own, f)
	}
	return d
}

// ofSelf is the desired state without other nodes.
func (f Facts) ofSelf() Desired {
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	f.Snapshot = &cluster.Snapshot{Nodes: []cluster.Node{own}}
	return Desire(f)
}

// differentNodes gives the other nodes that differ between two lists, before and after. sameSelf says that this node
// is not among them.
func differentNodes(before, after []cluster.Node, self string) (were, are []cluster.Node, sameSelf bool) {
	sameSelf = true
	cluster.DifferentNodes(before, after, func(was, is *cluster.Node) {
		if was != nil {
			sameSelf = sameSelf && was.Name != self
			were = append(were, *was)
		}
		if is != nil {
			sameSelf = sameSelf && is.Name != self
			are = append(are, *is)
		}
	})
	return were, are, sameSelf
}
