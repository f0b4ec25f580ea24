package service

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Changes are what one snapshot, or another configuration, changes.
type Changes struct {
	// Set are the ports that are new or different, Removed those that are there no more. A frontend may go from one port to another
	// within the same changes.
	Set     []Port
	Removed []PortName
	// Health is of all Services that have a healthCheckNodePort, sorted by name, whether or not it has changed.
	Health []Health
	// Problems are all complaints in force, one sentence each, sorted.
	Problems []string
	// GoneBackends are endpoints that serve no more: connections to them wait for answers that do not come.
	GoneBackends []netip.AddrPort
	// GoneUDP are those of GoneBackends that served UDP: nothing but who looks for its sockets ends what goes on to them.
	GoneUDP []netip.AddrPort
}

// Translator translates snapshot after snapshot and looks only at what has changed. It is not safe for concurrent use.
type Translator struct {
	configured, node NodeConfig // node is configured, with the zone of the snapshot
	// Of the last snapshot:
	services       []*cluster.Service
	endpointSlices []*cluster.EndpointSlice
	nodes          []cluster.Node
	hostPorts      []HostPort

	states map[owner]*state
	claims claims
	alive  alive
	// dirty are the states that something was changed in, touched those that got or lost a frontend by what others have.
	dirty, touched []*state
	// outstanding are the states with problems, health or external IPs, which few have.
	outstanding   map[owner]*state
	nodeAddresses map[netip.Addr]string
	translation   translation
}

// state is all that is known of one owner. A Service that is known only by its slices has no ports.
type state struct {
	owner
	service        *cluster.Service
	endpointSlices []*cluster.EndpointSlice // sorted by name
	hostPorts      []HostPort
	// wanted are its ports, told those that were given away in Changes: what others have is not in them.
	wanted, told []Port
	health       *Health
	problems     []string
	dirty        bool
}

// NewTranslator makes a Translator that has seen nothing.
func NewTranslator(node NodeConfig) *Translator {
	return &Translator{
		configured: node, node: node,
		states: map[owner]*state{}, outstanding: map[owner]*state{},
		claims: newClaims(), alive: alive{counts: map[backend]uint32{}},
	}
}

// SetNode changes what is known of the node. It has effect with the next Translate.
func (t *Translator) SetNode(node NodeConfig) { t.configured = node }

// Translate gives what has changed since the last call. hostPorts are those of the pods on this node, older ones first. While the snapshot
// does not have all Services and EndpointSlices (Snapshot.Unknown), those of the last one stay: after the first snapshot that
// has them, Ports is all that is to be there.
func (t *Translator) Translate(snapshot *cluster.Snapshot, hostPorts []HostPort) Changes {
	t.takeNode(snapshot)
	if !snapshot.Unknown.Has(cluster.KindService) && !snapshot.Unknown.Has(cluster.KindEndpointSlice) {
		compare(t.services, snapshot.Services, t.takeService)
		compare(t.endpointSlices, snapshot.EndpointSlices, t.takeSlice)
		t.services, t.endpointSlices = snapshot.Services, snapshot.EndpointSlices
	}
	t.takeHostPorts(hostPorts)

	for _, s := range t.dirty {
		t.translate(s)
	}
	var changes Changes
	t.dirty = append(t.dirty, t.touched...)
	for _, s := range t.dirty {
		now := t.claims.won(s.owner, s.wanted)
		changes.add(s.told, now)
		s.told, s.dirty = now, false
		if s.service == nil && len(s.endpointSlices) == 0 && len(s.hostPorts) == 0 {
			delete(t.states, s.owner)
		}
	}
	clear(t.dirty)
	clear(t.touched)
	t.dirty, t.touched = t.dirty[:0], t.touched[:0]
	changes.Health, changes.Problems = t.outcome()
	changes.GoneBackends, changes.GoneUDP = t.alive.gone()
	return changes
}

// TakeBackends takes backends that an earlier Translator had. Those that do not serve are among the GoneBackends of the next changes.
func (t *Translator) TakeBackends(all []Backend) { t.alive.take(all) }

// Ports are all ports that are there after the last Translate, sorted by the name of their owners.
func (t *Translator) Ports() []Port {
	owners := slices.SortedFunc(maps.Keys(t.states), owner.compare)
	var all []Port
	for _, o := range owners {
		all = append(all, t.states[o].told...)
	}
	return all
}

// takeNode takes the configuration and what the snapshot has of nodes.
func (t *Translator) takeNode(snapshot *cluster.Snapshot) {
	node := t.configured
	if own, found := snapshot.Node(node.Name); found {
		node.Zone = own.Zone
	}
	changed := !reflect.DeepEqual(node, t.node)
	t.node = node
	if changed {
		for _, o := range slices.SortedFunc(maps.Keys(t.states), owner.compare) {
			t.mark(t.states[o])
		}
	}
	if changed || t.nodeAddresses == nil || !cluster.Same(t.nodes, snapshot.Nodes) {
		t.nodes = snapshot.Nodes
		t.nodeAddresses = addressesOfNodes(snapshot.Nodes, &t.node)
	}
}

func (t *Translator) takeService(before, after *cluster.Service) {
	var s *state
	if after != nil {
		s = t.state(owner{key: after.Key()})
	} else {
		s = t.state(owner{key: before.Key()})
	}
	s.service = after
	t.mark(s)
}

func (t *Translator) takeSlice(before, after *cluster.EndpointSlice) {
	t.alive.replace(before, after)
	byName := func(slice *cluster.EndpointSlice, name string) int {
		return cluster.Key{Name: slice.Name}.Compare(cluster.Key{Name: name})
	}
	if before != nil {
		s := t.state(owner{key: cluster.Key{Namespace: before.Namespace, Name: before.Service}})
		if at, found := slices.BinarySearchFunc(s.endpointSlices, before.Name, byName); found {
			s.endpointSlices = slices.Delete(s.endpointSlices, at, at+1)
		}
		t.mark(s)
	}
	if after != nil {
		s := t.state(owner{key: cluster.Key{Namespace: after.Namespace, Name: after.Service}})
		at, _ := slices.BinarySearchFunc(s.endpointSlices, after.Name, byName)
		s.endpointSlices = slices.Insert(s.endpointSlices, at, after)
		t.mark(s)
	}
}

func (t *Translator) takeHostPorts(hostPorts []HostPort) {
	if slices.EqualFunc(t.hostPorts, hostPorts, func(a, b HostPort) bool { return a.equal(&b) }) {
		return
	}
	t.alive.replaceHostPorts(t.hostPorts, hostPorts)
	for _, h := range t.hostPorts {
		s := t.state(owner{pod: true, key: h.Pod})
		s.hostPorts = nil
		t.mark(s)
	}
	for _, h := range hostPorts {
		s := t.state(owner{pod: true, key: h.Pod})
		s.hostPorts = append(s.hostPorts, h)
		t.mark(s)
	}
	t.hostPorts = slices.Clone(hostPorts)
}

func (t *Translator) state(of owner) *state {
	s := t.states[of]
	if s == nil {
		s = &state{owner: of}
		t.states[of] = s
	}
	return s
}

func (t *Translator) mark(s *state) {
	if !s.dirty {
		s.dirty = true
		t.dirty = append(t.dirty, s)
	}
}

// translate makes the ports that an owner wants and claims their frontends.
func (t *Translator) translate(s *state) {
	before := s.wanted
	s.wanted, s.health, s.problems = nil, nil, nil
	switch {
	case s.pod:
		s.wanted = TranslateHostPorts(s.hostPorts, &t.node)
	case s.service != nil:
		done := t.translation.translate(s.service, s.endpointSlices, &t.node)
		s.wanted, s.health, s.problems = done.Ports, done.Health, done.Problems
	}
	keep(before, s.wanted)
	if s.health != nil || len(s.problems) > 0 || s.service != nil && len(s.service.ExternalIPs) > 0 {
		t.outstanding[s.owner] = s
	} else {
		delete(t.outstanding, s.owner)
	}
	if sameFrontends(before, s.wanted) {
		return
	}
	for _, p := range before {
		for _, e := range p.Entries {
			heir, found := t.claims.release(e.Frontend, s.owner)
			t.touch(heir, found)
		}
	}
	for _, p := range s.wanted {
		for _, e := range p.Entries {
			loser, lost := t.claims.take(e.Frontend, claim{s.owner, e.Kind})
			t.touch(loser, lost)
		}
	}
}

// touch has an owner looked at again, after all claims are known.
func (t *Translator) touch(other owner, found bool) {
	if found {
		t.touched = append(t.touched, t.states[other])
	}
}

// outcome gives the health and the problems of all.
func (t *Translator) outcome() (health []Health, problems []string) {
	problems = t.claims.problems()
	for _, s := range t.outstanding {
		if s.health != nil {
			health = append(health, *s.health)
		}
		problems = append(problems, s.problems...)
		problems = append(problems, ofNodes(s, t.nodeAddresses)...)
	}
	slices.SortFunc(health, func(a, b Health) int { return a.Service.Compare(b.Service) })
	slices.Sort(problems)
	return health, slices.Compact(problems)
}
