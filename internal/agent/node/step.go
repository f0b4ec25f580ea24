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

// Other nodes come and go, in a large cluster all the time. What is there for the others stays, so their routes are written at once, and nothing is read:
// a reconciliation, which goes over all nodes, follows when it is due.

// nodesAtOnce is how many nodes may change for that.
const nodesAtOnce = 100

// Step is what to do when other nodes come, go or change.
type Step struct {
	// Set and Del are routes of the datapath. Nested says that one of Set may contain another route, or lie in one.
	Set    map[netip.Prefix]fwd.Route
	Del    []netip.Prefix
	Nested bool
	// Add and Over are routes of the kernel to add and to delete.
	Add, Over []route.Route
	// Gone and Come are other nodes, for status.
	Gone, Come []agentapi.RemoteNode
}

// kept gives what of the Facts is of use until the next reconciliation.
func (f Facts) Kept() *Facts {
	f.Snapshot = &cluster.Snapshot{Nodes: f.Snapshot.Nodes}
	f.Routes, f.Neighbours = route.Table{}, nil
	return &f
}

// Take takes note of a step that is done.
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

// StepTo gives what to do where nothing but other nodes has changed. ok is false if more may have to be done than their routes: then, too, where
// somebody else has to do with their prefixes.
func (f Facts) StepTo(now Facts, current Desired) (step Step, ok bool) {
	before, after, sameSelf := differentNodes(f.Snapshot.Nodes, now.Snapshot.Nodes, f.Config.NodeName)
	if !sameSelf || len(before)+len(after) > nodesAtOnce || f.Uplink == nil || f.Unknown || f.Recovered+len(f.Claims)+len(now.Claims) > 0 || !f.sameTunnel(now) {
		return step, false
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

// routesWithout gives what is not among others.
func routesWithout(all, others []route.Route, same func(a, b route.Route) bool) (rest []route.Route) {
	for _, r := range all {
		if !slices.ContainsFunc(others, func(o route.Route) bool { return same(r, o) }) {
			rest = append(rest, r)
		}
	}
	return rest
}

// overlaps tells whether a prefix holds another one of the routes, or lies in one.
func (d *Desired) overlaps(p netip.Prefix) bool {
	for other := range d.Routes {
		if other != p && other.Overlaps(p) {
			return true
		}
	}
	return false
}

// sameTunnel tells whether the other nodes ask for the same tunnel device and leave pods the same room.
func (f Facts) sameTunnel(now Facts) bool {
	spec, needed := f.TunnelSpec()
	nowSpec, nowNeeded := now.TunnelSpec()
	return needed == nowNeeded && (!needed || f.Tunnel.Index != 0) && reflect.DeepEqual(spec, nowSpec) && f.podRoom() == now.podRoom()
}

// ofNodes is what is desired for some other nodes.
func (f Facts) ofNodes(nodes []cluster.Node) Desired {
	d := Desired{Routes: map[netip.Prefix]fwd.Route{}}
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	for _, n := range nodes {
		d.addNode(n, own, f)
	}
	return d
}

// ofSelf is what is desired where there is no other node.
func (f Facts) ofSelf() Desired {
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	f.Snapshot = &cluster.Snapshot{Nodes: []cluster.Node{own}}
	return Desire(f)
}

// differentNodes gives the other nodes that differ between two lists, as they were and as they are. sameSelf says that this node is not among them.
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
