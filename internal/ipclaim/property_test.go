package ipclaim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// TestNothingTwiceNothingLeaked lets agents, pods, nodes and pools come, fail and go in random orders. No address is ever
// given twice, none is released while a pod has it, and in the end none is left.
func TestNothingTwiceNothingLeaked(t *testing.T) {
	const steps = 400
	for _, seed := range testenv.Seeds(t, 300) {
		w := newSimulation(t, seed, 4)
		for range steps {
			w.step()
			if w.check(); t.Failed() {
				break
			}
		}
		if !t.Failed() {
			w.checkEnd()
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.trace[max(0, len(w.trace)-80):], "\n"))
		}
	}
}

// step lets one thing happen.
func (w *simulation) step() {
	w.depth++
	defer func() { w.depth-- }()
	n := w.nodes[w.rand.IntN(len(w.nodes))]
	switch w.rand.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		n.add(w.newPod(n))
	case 6, 7, 8, 9:
		n.deleteOne()
	case 10, 11:
		if n.up {
			n.watch.Deliver(n.agent, w.rand.IntN(4))
		}
	case 12, 13:
		n.pass(w.rand.IntN(2) == 0)
	case 14:
		if n.up {
			w.log("%s: the agent restarts", n.name)
			n.start()
		}
	case 15:
		w.forceAway()
	case 16:
		w.changeNode(n)
	case 17:
		w.changePools()
	case 18:
		w.changeSets()
	case 19:
		if len(w.late) > 0 {
			w.log("a late request is executed")
			late := w.late[0]
			w.late = w.late[1:]
			late()
		}
	}
}

// pick gives a random value of a map, in an order that the seed decides.
func pick[K comparable, V any](r *rand.Rand, from map[K]V, compare func(a, b K) int) (value V, ok bool) {
	if len(from) == 0 {
		return value, false
	}
	keys := slices.SortedFunc(maps.Keys(from), compare)
	return from[keys[r.IntN(len(keys))]], true
}

func compareAttachments(a, b Attachment) int { return strings.Compare(a.ContainerID, b.ContainerID) }

// newPod makes a pod on a node, of a StatefulSet or not; nil if there can be none.
func (w *simulation) newPod(n *node) *cluster.Pod {
	w.uids++
	p := &cluster.Pod{Namespace: "shop", Name: fmt.Sprint("pod-", w.uids), UID: cluster.NewUID(fmt.Sprint("uid-", w.uids)), Node: n.name}
	if w.rand.IntN(2) == 0 {
		set := fmt.Sprint("web-", w.rand.IntN(2))
		ordinal := w.rand.IntN(3)
		if ordinal >= w.sets[cluster.Key{Namespace: "shop", Name: set}] {
			return nil
		}
		p.StatefulSet, p.Name = set, fmt.Sprintf("%s-%d", set, ordinal)
	}
	if w.pods[p.Key()] != nil || !n.up || !n.registered {
		return nil
	}
	w.pods[p.Key()] = p
	return p
}

// add is an ADD: of a pod, or of a new container of one that has lost its own.
func (n *node) add(p *cluster.Pod) {
	if !n.up {
		return
	}
	if p == nil {
		if p, _ = pick(n.rand, n.pods, cluster.Key.Compare); p == nil || p.Node != n.name || n.has(p) {
			return
		}
	}
	n.uids++
	att := Attachment{fmt.Sprint("container-", n.uids), "eth0"}
	pools := slices.Clone(n.simulation.pools.Pools)
	n.rand.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	pools = slices.DeleteFunc(pools, func(p *ippool.Pool) bool { return p.Disabled })
	if len(pools) == 0 {
		return
	}
	agent := n.agent
	request := Request{Namespace: p.Namespace, Pod: p.Name, PodUID: uidText(p), StatefulSet: p.StatefulSet, Pools: pools[:1+n.rand.IntN(len(pools))]}
	got, err := agent.Allocate(n.t.Context(), att, request)
	n.log("%s: ADD %s for %s: %+v, %v", n.name, att.ContainerID, p.Key(), got, err)
	if err != nil || n.agent != agent || !n.up {
		return
	}
	if n.rand.IntN(10) == 0 {
		n.log("%s: the agent dies in ADD", n.name)
		n.start()
		if n.rand.IntN(2) == 0 {
			n.agent.Release(att) // the runtime's DEL
		}
		return
	}
	if n.rand.IntN(10) == 0 {
		n.log("%s: the ADD fails later", n.name)
		agent.Release(att)
		return
	}
	if agent.Commit(att) == nil {
		n.endpoints[att] = &endpoint{Live{att, request, got.Pool.Name, got.Addresses}, p, !n.registered}
	}
}

// uidText gives a text that makes the UID of a pod.
func uidText(p *cluster.Pod) string {
	u := fmt.Sprintf("%x", p.UID[:])
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:]
}

func (n *node) has(p *cluster.Pod) bool {
	for _, e := range n.endpoints {
		if e.pod == p {
			return true
		}
	}
	return false
}

// deleteOne is a DEL, of a pod that is deleted or of a container that is replaced.
func (n *node) deleteOne() {
	e, ok := pick(n.rand, n.endpoints, compareAttachments)
	if !ok || !n.up {
		return
	}
	delete(n.endpoints, e.Attachment)
	n.log("%s: DEL %s of %s", n.name, e.ContainerID, e.pod.Key())
	n.agent.Release(e.Attachment)
	switch n.rand.IntN(4) {
	case 0: // the container ends, and the pod gets another one
	case 1:
		e.pod = &cluster.Pod{Namespace: e.pod.Namespace, Name: e.pod.Name, UID: e.pod.UID, Node: e.pod.Node, Ended: true, StatefulSet: e.pod.StatefulSet}
		if now := n.pods[e.pod.Key()]; now != nil && now.UID == e.pod.UID {
			n.pods[e.pod.Key()] = e.pod
		}
	default:
		if n.pods[e.pod.Key()] == e.pod {
			delete(n.pods, e.pod.Key())
		}
	}
	if n.rand.IntN(2) == 0 {
		n.pass(false)
	}
}

// pass is what the agent does on its own. Afterwards it takes away the addresses that it has lost.
func (n *node) pass(all bool) {
	if !n.up {
		return
	}
	agent := n.agent
	_ = agent.Pass(n.t.Context(), all)
	n.dropLost(agent)
}

func (n *node) dropLost(agent *Allocator) {
	for _, l := range agent.Lost() {
		if n.agent != agent || n.endpoints[l.Attachment] == nil {
			continue
		}
		n.log("%s: %s", n.name, l.Reason)
		delete(n.endpoints, l.Attachment)
		agent.Release(l.Attachment)
	}
}

// forceAway deletes a pod's object while its container runs.
func (w *simulation) forceAway() {
	if p, ok := pick(w.rand, w.pods, cluster.Key.Compare); ok {
		w.log("pod %s is deleted by force", p.Key())
		delete(w.pods, p.Key())
	}
}

// changeNode kills a machine, or deletes the Node, or lets the machine come back, without its pods or with them.
func (w *simulation) changeNode(n *node) {
	switch {
	case n.up && n.registered && w.rand.IntN(2) == 0:
		w.log("%s dies", n.name)
		n.up = false
		n.endpoints = map[Attachment]*endpoint{}
	case n.registered && w.rand.IntN(3) == 0:
		w.log("Node %s is deleted, up: %v", n.name, n.up)
		n.registered = false
		for _, e := range n.endpoints {
			e.doubtful = true
		}
		for key, p := range w.pods {
			if p.Node == n.name {
				delete(w.pods, key)
			}
		}
	case !n.registered || !n.up:
		w.log("%s comes back", n.name)
		n.registered, n.up = true, true
		n.start()
		// The agent finds out what it has lost before its pods count again.
		faults := w.faults
		w.faults = false
		n.watch.Deliver(n.agent, -1)
		_ = n.agent.Pass(w.t.Context(), false)
		n.dropLost(n.agent)
		w.faults = faults
	}
}

// changePools lets a pool shrink, grow, overlap another one, or be disabled.
func (w *simulation) changePools() {
	a := pool("a", 1, "192.0.2.1-192.0.2.8", "2001:db8::1-2001:db8::9")
	b := pool("b", 2, "192.0.2.20-192.0.2.24")
	switch w.rand.IntN(6) {
	case 0:
		a = pool("a", 1, "192.0.2.3-192.0.2.5", "2001:db8::4-2001:db8::9")
	case 1:
		b = pool("b", 2, "192.0.2.5-192.0.2.24")
	case 2:
		b = pool("b", 0, "192.0.2.5-192.0.2.24")
	case 3:
		a.Disabled = true
	case 4:
		b.NamespaceMax = 2
	}
	w.pools = poolsOf(a, b)
	for _, n := range w.nodes {
		n.agent.SetPools(w.pools)
	}
}

func (w *simulation) changeSets() {
	w.sets[cluster.Key{Namespace: "shop", Name: fmt.Sprint("web-", w.rand.IntN(2))}] = w.rand.IntN(4)
}

// check fails if two pods have an address, or if a pod's claim is gone. Pods whose Node was deleted do not count: that is
// how an administrator says that they do not run. If they do, the agent takes their addresses away when it finds out.
func (w *simulation) check() {
	has := map[netip.Addr]string{}
	claims := map[netip.Addr]*cluster.IPClaim{}
	for _, c := range w.store.All() {
		claims[c.Address] = c
	}
	for _, n := range w.nodes {
		if n.up {
			n.checkRemote()
		}
		if !n.registered || !n.up {
			continue
		}
		for att, e := range n.endpoints {
			for _, a := range e.Addresses {
				if e.doubtful {
					continue
				}
				if other := has[a]; other != "" {
					w.t.Errorf("%s is given twice: to %s and %s", a, other, att.ContainerID)
				}
				has[a] = att.ContainerID
				if c := claims[a]; c == nil || !isOf(c, n.name, att) {
					w.t.Errorf("%s of %s on %s has no claim: %+v", a, att.ContainerID, n.name, c)
				}
			}
		}
	}
}

// quiesce ends all faults and lets all agents do what they have to do.
func (w *simulation) quiesce() {
	w.faults = false
	for _, late := range w.late {
		late()
	}
	w.late = nil
	for _, n := range w.nodes {
		n.registered = n.registered && n.up // a machine that is down for good
	}
	if !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.up && n.registered }) {
		w.changeNode(w.nodes[0])
	}
	for range 3 {
		for _, n := range w.nodes {
			if !n.up {
				continue
			}
			n.watch.Deliver(n.agent, -1)
			if err := n.agent.Pass(w.t.Context(), true); err != nil {
				w.t.Errorf("without faults: %v", err)
			}
			n.dropLost(n.agent)
		}
	}
}

// checkReasons fails if a claim has no reason to exist: an endpoint, a pod that has none yet, or a StatefulSet.
func (w *simulation) checkReasons() {
	all := w.store.All()
	for _, c := range all {
		p := w.pods[podOf(c)]
		isPod := p != nil && !p.Ended && p.UID == cluster.NewUID(c.PodUID)
		hasEndpoint, hasOther := false, false
		for _, n := range w.nodes {
			for att, e := range n.endpoints {
				hasEndpoint = hasEndpoint || isOf(c, n.name, att)
				hasOther = hasOther || p != nil && n.registered && e.pod == p && e.Attachment != attachmentOf(c) &&
					slices.ContainsFunc(e.Addresses, func(a netip.Addr) bool { return a.Is4() == c.Address.Is4() })
			}
		}
		ordinal, _ := ordinalOf(c)
		wanted := c.StatefulSet != "" && !c.Bound() && ordinal < w.sets[cluster.Key{Namespace: c.Namespace, Name: c.StatefulSet}]
		switch {
		case hasEndpoint, c.Conflicts(), !hasOther && isPod, !hasOther && wanted:
		default:
			w.t.Errorf("no reason for the claim %+v (pod: %v, another address: %v, wanted: %v)", *c, isPod, hasOther, wanted)
		}
	}
}

// checkRemote compares what an agent remembers of other nodes with a walk over all claims.
func (n *node) checkRemote() {
	want := map[string][]netip.Addr{}
	for addr, c := range n.agent.index.claims {
		if node := n.agent.index.remoteNode(c); node != "" && n.agent.index.set.Has(addr, c.Created) {
			want[node] = append(want[node], addr)
		}
	}
	got := n.agent.Remote()
	for _, all := range []map[string][]netip.Addr{want, got} {
		for node, list := range all {
			all[node] = slices.SortedFunc(slices.Values(list), netip.Addr.Compare)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		n.t.Errorf("%s knows of other nodes %v, the claims say %v", n.name, got, want)
	}
}

// checkEnd ends all pods, nodes and StatefulSets, without faults: no claim may be left.
func (w *simulation) checkEnd() {
	w.quiesce()
	w.check()
	if w.checkReasons(); w.t.Failed() {
		return
	}
	clear(w.pods)
	clear(w.sets)
	w.now = w.now.Add(2 * conflictTime)
	for _, n := range w.nodes {
		for att := range n.endpoints {
			n.agent.Release(att)
		}
		clear(n.endpoints)
	}
	w.quiesce()
	for _, c := range w.store.All() {
		w.t.Errorf("leaked: %+v", *c)
	}
	for _, n := range w.nodes {
		n.watch.Deliver(n.agent, -1)
		for _, p := range w.pools.Pools {
			for _, f := range ippool.Families {
				if use := n.agent.Use(p, f); n.up && (use.Taken != 0 || use.Allocated != 0) {
					w.t.Errorf("%s counts %+v of pool %s", n.name, use, p.Name)
				}
			}
		}
	}
}
