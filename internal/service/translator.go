package service

import (
	"fmt"
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
	// Problems are all complaints in force, sorted, and bounded for each object.
	Problems []Problem
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
	endpointSlices cluster.List[*cluster.EndpointSlice]
	nodes          []cluster.Node
	hostPorts      []HostPort

	states map[owner]*state
	claims claims
	alive  alive
	guard  guard
	shares shares
	// dirty are the states that something was changed in, touched those that got or lost a frontend by what others have.
	dirty, touched []*state
	// outstanding are the states with problems or health, exposed those with external addresses; few have either.
	outstanding, exposed map[owner]*state
	translation          translation
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
	// problems are those that every node has, local are this node's.
	problems, local []string
	dirty           bool
	// load is what it asks for, refused are the resources of which it gets nothing since others are served first.
	load    load
	refused [resources]bool
	// counted are the slices whose endpoints are among those that are alive.
	counted []*cluster.EndpointSlice
}

// uid is that of the Service's object.
func (s *state) uid() string {
	if s == nil || s.service == nil {
		return ""
	}
	return s.service.UID
}

// NewTranslator makes a Translator that has seen nothing.
func NewTranslator(node NodeConfig) *Translator {
	t := &Translator{
		configured: node, node: node,
		states: map[owner]*state{}, outstanding: map[owner]*state{}, exposed: map[owner]*state{},
		claims: newClaims(), alive: alive{counts: map[backend]uint32{}},
		guard: newGuard(), shares: shares{spaces: map[string]*[resources]int{}},
	}
	t.translation.guard = &t.guard
	return t
}

// SetNode changes what is known of the node. It has effect with the next Translate.
func (t *Translator) SetNode(node NodeConfig) { t.configured = node }

// Translate gives what has changed since the last call. hostPorts are those of the pods on this node, older ones first. While the snapshot
// does not have all Services and EndpointSlices (Snapshot.Unknown), those of the last one stay: after the first snapshot that
// has them, Ports is all that is to be there.
func (t *Translator) Translate(snapshot *cluster.Snapshot, hostPorts []HostPort) Changes {
	t.takeNode(snapshot)
	if !snapshot.Unknown.Has(cluster.KindService) && !snapshot.Unknown.Has(cluster.KindEndpointSlice) {
		cluster.Differences(cluster.ListOf(t.services...), cluster.ListOf(snapshot.Services...), t.takeService)
		cluster.Differences(t.endpointSlices, snapshot.EndpointSlices, t.takeSlice)
		t.services, t.endpointSlices = snapshot.Services, snapshot.EndpointSlices
	}
	t.takeHostPorts(hostPorts)
	t.lookAtExposed()
	for _, s := range t.dirty {
		before := s.load
		s.load = load{}
		if !s.pod {
			s.load = loadOf(s.service, s.endpointSlices, &t.node)
		}
		t.shares.change(s.key.Namespace, before, s.load)
	}
	t.shares.divide(t.states, t.node.Limits, t.mark)

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
	if t.guard.nodes == nil || !cluster.Same(t.nodes, snapshot.Nodes) {
		before := t.nodes
		t.nodes = snapshot.Nodes
		if t.guard.takeNodes(before, snapshot.Nodes) {
			for _, s := range t.exposed {
				t.mark(s)
			}
		}
	}
}

// lookAtExposed has those translated anew whose external addresses have become a Service's cluster IP, or are none any more.
func (t *Translator) lookAtExposed() {
	if len(t.guard.changed) == 0 {
		return
	}
	for _, s := range t.exposed {
		if t.guard.concerns(s.service) {
			t.mark(s)
		}
	}
	clear(t.guard.changed)
}

func (t *Translator) takeService(before, after *cluster.Service) {
	var s *state
	if after != nil {
		s = t.state(owner{key: after.Key()})
	} else {
		s = t.state(owner{key: before.Key()})
	}
	s.service = after
	t.guard.takeService(before, after)
	if after != nil && len(after.ExternalIPs)+len(after.LoadBalancerIPs) > 0 {
		t.exposed[s.owner] = s
	} else {
		delete(t.exposed, s.owner)
	}
	t.mark(s)
}

func (t *Translator) takeSlice(before, after *cluster.EndpointSlice) {
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
	s.wanted, s.health, s.problems, s.local = nil, nil, nil, nil
	within, beyond := t.countEndpoints(s)
	switch {
	case s.pod:
		s.wanted = TranslateHostPorts(s.hostPorts, &t.node)
		s.problems = hostPortProblems(s.hostPorts, &t.node)
	case s.service != nil:
		t.translation.refused = s.refused
		done := t.translation.translate(s.service, within, &t.node)
		s.wanted, s.health, s.problems, s.local = done.Ports, done.Health, done.Problems, done.Local
		if beyond > 0 {
			s.problems = append(s.problems, fmt.Sprintf("%s: the endpoints of %d of its %d EndpointSlices get no connections: one Service has at most %d endpoints with ports (a part of --backends-max)",
				s.owner, beyond, len(s.endpointSlices), t.node.Limits.serviceBackends()))
		}
	}
	keep(before, s.wanted)
	if s.health != nil || len(s.problems)+len(s.local) > 0 {
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

// countEndpoints gives the slices of a Service whose endpoints it may have, and takes note that these, and no others of it, are alive.
func (t *Translator) countEndpoints(s *state) (within []*cluster.EndpointSlice, beyond int) {
	if !s.refused[endpoints] {
		within, beyond = t.node.Limits.bounded(ofService(s.key, s.endpointSlices))
	}
	cluster.Differences(cluster.ListOf(s.counted...), cluster.ListOf(within...), t.alive.replace)
	s.counted = slices.Clone(within)
	return within, beyond
}

// ofService gives the slices that are used for a Service: where the API server keeps the one of its own Service, others that somebody has
// made are not its.
func ofService(key cluster.Key, all []*cluster.EndpointSlice) []*cluster.EndpointSlice {
	if key == kubernetesService {
		for i, slice := range all {
			if slice.Name == kubernetesService.Name {
				return all[i : i+1 : i+1]
			}
		}
	}
	return all
}

// outcome gives the health and the problems of all.
func (t *Translator) outcome() (health []Health, problems []Problem) {
	problems = slices.Concat(t.claims.problems(func(o owner) string { return t.states[o].uid() }), t.shares.problems(t.states, t.node.Limits))
	for _, s := range t.outstanding {
		if s.health != nil {
			health = append(health, *s.health)
		}
		for _, text := range s.problems {
			problems = append(problems, s.problem(s.uid(), false, text))
		}
		for _, text := range s.local {
			problems = append(problems, s.problem(s.uid(), true, text))
		}
	}
	slices.SortFunc(health, func(a, b Health) int { return a.Service.Compare(b.Service) })
	slices.SortFunc(problems, Problem.compare)
	return health, slices.Compact(problems)
}
