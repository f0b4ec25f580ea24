package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// fill makes Tables; all objects have their numbers.
func (c *Compiler) fill(t *Tables, w *passInput) {
	t.Pods, t.Selected = c.subjects.tables()
	t.Identities = make(map[netip.Addr]Identity, len(w.own))
	// Also without selected pods: a node must reach a pod that is isolated until its policies are compiled.
	for addr := range w.own {
		t.Identities[addr] = IdentityNode
	}
	if c.peers.table = c.peers.table.With(c.peers.numbers()); len(c.peers.counts) > 0 {
		t.Peers = c.peers.table
	}
	t.Pods, t.Selected = share(c.last.Pods, t.Pods), shareSelected(c.last.Selected, t.Selected)
	t.Identities = share(c.last.Identities, t.Identities)
	if c.limits.overLimit() {
		t.Policies, t.Ports, t.Names = c.last.Policies, c.last.Ports, c.last.Names // the pass is repeated
	} else if c.fillPolicies(t) {
		c.fillPorts(t)
	} else {
		t.Ports, t.Names = c.last.Ports, c.last.Names
	}
	c.fillBlocks(t)
}

// fillPorts makes the tables of ports from the lists that this pass used.
func (c *Compiler) fillPorts(t *Tables) {
	c.names.begin()
	t.Ports, t.Names = map[PortPrefix]Policy{}, map[Policy]cluster.Key{}
	var lists []*numbered[portList]
	named := map[cluster.Key]*numbered[cluster.Key]{}
	for _, list := range c.portLists.objects {
		if list.used != c.portLists.pass {
			continue
		}
		lists = append(lists, list)
		for _, e := range list.value {
			if named[e.policy] == nil {
				d := newDigest("policy")
				d.key(e.policy)
				named[e.policy] = c.names.get(d.content(), func() cluster.Key { return e.policy })
			}
		}
	}
	c.names.assign()
	for key, name := range named {
		t.Names[Policy(name.number)] = key
	}
	for _, list := range lists {
		for _, e := range list.value {
			prefix := e.prefix
			prefix.Ports = portsNumber(list)
			t.Ports[prefix] = Policy(named[e.policy].number)
		}
	}
	c.names.sweep()
	t.Ports, t.Names = share(c.last.Ports, t.Ports), share(c.last.Names, t.Names)
}

// portsNumber returns the number of a list; the empty one has 0.
func portsNumber(list *numbered[portList]) Ports {
	if len(list.value) == 0 {
		return 0
	}
	return Ports(list.number)
}

// share returns before if both maps are equal, so that callers can compare maps by identity.
func share[K, V comparable](before, now map[K]V) map[K]V {
	if before != nil && maps.Equal(before, now) {
		return before
	}
	return now
}

func shareSelected(before, now map[cluster.Key][]cluster.Key) map[cluster.Key][]cluster.Key {
	if before != nil && maps.EqualFunc(before, now, slices.Equal[[]cluster.Key]) {
		return before
	}
	return now
}
