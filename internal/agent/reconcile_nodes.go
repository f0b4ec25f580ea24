package agent

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
)

// Other nodes come and go, in a large cluster all the time. What is there for the others stays, so their routes are written at once, and nothing is read:
// a reconciliation, which goes over all nodes, follows when it is due.

// nodesAtOnce is how many nodes may change for that.
const nodesAtOnce = 100

// nodesStep is what to do when other nodes come, go or change.
type nodesStep struct {
	// set and del are of the datapath's table; nested says that one of set may hold another entry, or lie in one.
	set    map[netip.Prefix]datapath.Route
	del    []netip.Prefix
	nested bool
	// add and over are routes of the kernel.
	add, over []device.Route
	// gone and come are other nodes as status has them.
	gone, come []agentapi.RemoteNode
}

// kept gives what of the facts is of use until the next reconciliation.
func (f facts) kept() *facts {
	f.snapshot = &cluster.Snapshot{Nodes: f.snapshot.Nodes}
	f.routes, f.neighbours = device.Routes{}, nil
	return &f
}

// reconcileNodes makes the kernel hold what the nodes of a new snapshot ask for, as far as that is a matter of some other nodes' routes. It returns
// false if it takes a reconciliation, and has perhaps done a part then.
func (a *Agent) reconcileNodes() (done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || a.failure != nil || !a.vouches || a.snapshot.Incomplete {
		return false
	}
	now := *a.known
	now.snapshot, now.claims = ownFirst(&cluster.Snapshot{Nodes: a.snapshot.Nodes}, a.config.NodeName, now.local)
	now.endpoints = slices.Collect(maps.Values(a.endpoints))
	step, ok := a.known.stepTo(now, a.current)
	if !ok {
		return false
	}
	if err := a.applyNodes(step); err != nil {
		a.log.Info("routes of nodes that have changed: all are looked at", "error", err)
		return false
	}
	a.known = &now
	a.current.takeNodes(step)
	return true
}

// applyNodes does so. As in apply the table is written before the routes of the kernel.
func (a *Agent) applyNodes(step nodesStep) error {
	if err := a.datapath.Routes.Change(step.set, step.del, step.nested); err != nil {
		return err
	}
	var errs []error
	for _, r := range step.add {
		errs = append(errs, device.AddRoute(r))
	}
	for _, r := range step.over {
		errs = append(errs, device.DelRoute(r))
	}
	return errors.Join(errs...)
}

// takeNodes takes note of a step that is done.
func (d *desired) takeNodes(step nodesStep) {
	maps.Copy(d.routes, step.set)
	for _, p := range step.del {
		delete(d.routes, p)
	}
	byName := func(n, other agentapi.RemoteNode) int { return strings.Compare(n.Name, other.Name) }
	nodes := d.nodes
	for _, n := range step.gone {
		if at, found := slices.BinarySearchFunc(nodes, n, byName); found {
			nodes = slices.Delete(nodes, at, at+1)
		}
	}
	for _, n := range step.come {
		at, _ := slices.BinarySearchFunc(nodes, n, byName)
		nodes = slices.Insert(nodes, at, n)
	}
	d.nodes = nodes
}

// stepTo gives what to do where nothing but other nodes has changed. ok is false if more may have to be done than their routes: then, too, where
// somebody else has to do with their prefixes.
func (f facts) stepTo(now facts, current desired) (step nodesStep, ok bool) {
	before, after, sameSelf := differentNodes(f.snapshot.Nodes, now.snapshot.Nodes, f.config.NodeName)
	if !sameSelf || len(before)+len(after) > nodesAtOnce || f.uplink == nil || f.unknown || f.found+len(f.claims)+len(now.claims) > 0 || !f.sameTunnel(now) {
		return step, false
	}
	gone, come, own := f.ofNodes(before), now.ofNodes(after), now.ofSelf()
	if len(gone.problems)+len(come.problems) > 0 || come.tunnelRules && !current.tunnelRules {
		return step, false
	}
	step = nodesStep{set: map[netip.Prefix]datapath.Route{}, gone: gone.nodes, come: come.nodes}
	for p, route := range come.routes {
		was, had := gone.routes[p]
		if _, taken := current.routes[p]; taken != had {
			return step, false
		}
		if was != route || !had {
			step.set[p] = route
		}
		step.nested = step.nested || !had && current.overlaps(p)
	}
	for p := range gone.routes {
		if _, stays := come.routes[p]; stays {
			continue
		}
		if _, isOwn := own.routes[p]; isOwn {
			return step, false
		}
		step.del = append(step.del, p)
	}
	step.add, step.over = routesWithout(come.kernelRoutes, gone.kernelRoutes, func(a, b device.Route) bool { return a == b }),
		routesWithout(gone.kernelRoutes, come.kernelRoutes, func(a, b device.Route) bool { return a.Prefix == b.Prefix && a.Table == b.Table })
	return step, true
}

// routesWithout gives what is not among others.
func routesWithout(all, others []device.Route, same func(a, b device.Route) bool) (rest []device.Route) {
	for _, r := range all {
		if !slices.ContainsFunc(others, func(o device.Route) bool { return same(r, o) }) {
			rest = append(rest, r)
		}
	}
	return rest
}

// overlaps tells whether a prefix holds another one of the routes, or lies in one.
func (d *desired) overlaps(p netip.Prefix) bool {
	for other := range d.routes {
		if other != p && other.Overlaps(p) {
			return true
		}
	}
	return false
}

// sameTunnel tells whether the other nodes ask for the same tunnel device and leave pods the same room.
func (f facts) sameTunnel(now facts) bool {
	spec, needed := f.tunnelSpec()
	nowSpec, nowNeeded := now.tunnelSpec()
	return needed == nowNeeded && (!needed || f.tunnel.index != 0) && reflect.DeepEqual(spec, nowSpec) && f.podRoom() == now.podRoom()
}

// ofNodes is what is desired for some other nodes.
func (f facts) ofNodes(nodes []cluster.Node) desired {
	d := desired{routes: map[netip.Prefix]datapath.Route{}}
	own, _ := f.snapshot.Node(f.config.NodeName)
	for _, n := range nodes {
		d.addNode(n, own, f)
	}
	return d
}

// ofSelf is what is desired where there is no other node.
func (f facts) ofSelf() desired {
	own, _ := f.snapshot.Node(f.config.NodeName)
	f.snapshot = &cluster.Snapshot{Nodes: []cluster.Node{own}}
	return desire(f)
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
