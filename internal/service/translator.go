package service

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Changes are the differences that a snapshot, or another configuration, makes.
type Changes struct {
	// Set are new or changed ports, Removed deleted ones. A frontend may move from one port to another within the same Changes.
	Set     []Port
	Removed []PortName
	// Health is that of all Services with a healthCheckNodePort, sorted by name, changed or not.
	Health []Health
	// Problems are all current problems, sorted, and limited for each object.
	Problems []Problem
	// GoneBackends are endpoints that serve no longer: connections to them would wait for replies that never come.
	GoneBackends []netip.AddrPort
	// GoneUDP are those of GoneBackends that served UDP: its sockets must be destroyed, since UDP has no end.
	GoneUDP []netip.AddrPort
}

// Translator translates one snapshot after the other and looks only at what changed. It is not safe for concurrent use.
type Translator struct {
	configured, node NodeConfig // node is configured, with the zone of the snapshot
	// Of the last snapshot:
	services       []*cluster.Service
	endpointSlices cluster.List[*cluster.EndpointSlice]
	nodes          []cluster.Node
	hostPorts      []HostPort

	states    map[owner]*state
	ownership ownership
	serving   serving
	reserved  reserved
	shares    shares
	// dirty are the states to translate again, touched the states that gained or lost a frontend through others.
	dirty, touched []*state
	// outstanding are the states with problems or health, exposed those with external addresses; few have either.
	outstanding, exposed map[owner]*state
	translation          translation
}

// state is everything about one owner. A Service of which only slices are known has no ports.
type state struct {
	owner
	service        *cluster.Service
	endpointSlices []*cluster.EndpointSlice // sorted by name
	hostPorts      []HostPort
	// wanted are its ports, reported those in the last Changes, without frontends that others own.
	wanted, reported []Port
	health           *Health
	// problems are those of every node, local are this node's.
	problems, local []string
	dirty           bool
	// load is its demand, rejected are the resources of which it gets nothing.
	load     load
	rejected [resources]bool
	// counted are the slices whose endpoints are counted in serving.
	counted []*cluster.EndpointSlice
}

// uid returns the UID of the Service's object.
func (s *state) uid() string {
	if s == nil || s.service == nil {
		return ""
	}
	return s.service.UID
}

// NewTranslator returns an empty Translator.
func NewTranslator(node NodeConfig) *Translator {
	t := &Translator{
		configured: node, node: node,
		states: map[owner]*state{}, outstanding: map[owner]*state{}, exposed: map[owner]*state{},
		ownership: ownership{requests: map[Frontend][]request{}}, serving: serving{counts: map[backend]uint32{}},
		reserved: newReserved(), shares: shares{spaces: map[string]*[resources]int{}},
	}
	t.translation.reserved = &t.reserved
	return t
}

// SetNode replaces the configuration of the node, from the next Translate on.
func (t *Translator) SetNode(node NodeConfig) { t.configured = node }

// Translate returns the changes since the last call. hostPorts are those of this node's pods, oldest first. While the snapshot
// lacks Services or EndpointSlices (Snapshot.Unknown), those of the last one stay. After the first complete snapshot, Ports is
// the whole desired state.
func (t *Translator) Translate(snapshot *cluster.Snapshot, hostPorts []HostPort) Changes {
	t.updateNode(snapshot)
	if !snapshot.Unknown.Has(cluster.KindService) && !snapshot.Unknown.Has(cluster.KindEndpointSlice) {
		cluster.Differences(cluster.ListOf(t.services...), cluster.ListOf(snapshot.Services...), t.updateService)
		cluster.Differences(t.endpointSlices, snapshot.EndpointSlices, t.takeSlice)
		t.services, t.endpointSlices = snapshot.Services, snapshot.EndpointSlices
	}
	t.takeHostPorts(hostPorts)
	t.refreshExposed()
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
		now := t.ownership.granted(s.owner, s.wanted)
		changes.add(s.reported, now)
		s.reported, s.dirty = now, false
		if s.service == nil && len(s.endpointSlices) == 0 && len(s.hostPorts) == 0 {
			delete(t.states, s.owner)
		}
	}
	clear(t.dirty)
	clear(t.touched)
	t.dirty, t.touched = t.dirty[:0], t.touched[:0]
	changes.Health, changes.Problems = t.outcome()
	changes.GoneBackends, changes.GoneUDP = t.serving.stopped()
	return changes
}

// AddBackends adds the backends of an earlier Translator. Those that do not serve are in the GoneBackends of the next Changes.
func (t *Translator) AddBackends(all []Backend) { t.serving.take(all) }

// Ports returns all ports after the last Translate, sorted by the name of their owners.
func (t *Translator) Ports() []Port {
	owners := slices.SortedFunc(maps.Keys(t.states), owner.compare)
	var all []Port
	for _, o := range owners {
		all = append(all, t.states[o].reported...)
	}
	return all
}

// updateNode applies the configuration and the snapshot's nodes.
func (t *Translator) updateNode(snapshot *cluster.Snapshot) {
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
	exposedChange := false
	if t.reserved.nodes == nil || !cluster.Same(t.nodes, snapshot.Nodes) {
		t.nodes = snapshot.Nodes
		exposedChange = t.reserved.setNodes(snapshot.Nodes)
	}
	if !cluster.Same(t.reserved.pools, snapshot.IPPools) {
		exposedChange = t.reserved.setPools(snapshot.IPPools) || exposedChange
	}
	if exposedChange {
		for _, s := range t.exposed {
			t.mark(s)
		}
	}
}

// refreshExposed marks Services whose external addresses have become a cluster IP, or are one no longer.
func (t *Translator) refreshExposed() {
	if len(t.reserved.changed) == 0 {
		return
	}
	for _, s := range t.exposed {
		if t.reserved.affects(s.service) {
			t.mark(s)
		}
	}
	clear(t.reserved.changed)
}

func (t *Translator) updateService(before, after *cluster.Service) {
	var s *state
	if after != nil {
		s = t.state(owner{key: after.Key()})
	} else {
		s = t.state(owner{key: before.Key()})
	}
	s.service = after
	t.reserved.updateService(before, after)
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
	t.serving.replaceHostPorts(t.hostPorts, hostPorts)
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

// translate makes the ports that an owner wants and requests their frontends.
func (t *Translator) translate(s *state) {
	before := s.wanted
	s.wanted, s.health, s.problems, s.local = nil, nil, nil, nil
	within, excess := t.countEndpoints(s)
	switch {
	case s.pod:
		s.wanted = TranslateHostPorts(s.hostPorts, &t.node)
		s.problems = hostPortProblems(s.hostPorts, &t.node)
	case s.service != nil:
		t.translation.rejected = s.rejected
		done := t.translation.translate(s.service, within, &t.node)
		s.wanted, s.health, s.problems, s.local = done.Ports, done.Health, done.Problems, done.Local
		if excess > 0 {
			s.problems = append(s.problems, fmt.Sprintf("%s: the endpoints of %d of its %d EndpointSlices get no connections: one Service has at most %d endpoints with ports (a part of --backends-max)",
				s.owner, excess, len(s.endpointSlices), t.node.Limits.serviceBackends()))
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
			successor, found := t.ownership.release(e.Frontend, s.owner)
			t.markTouched(successor, found)
		}
	}
	for _, p := range s.wanted {
		for _, e := range p.Entries {
			loser, lost := t.ownership.take(e.Frontend, request{s.owner, e.Kind})
			t.markTouched(loser, lost)
		}
	}
}

// markTouched makes an owner be looked at again, after all requests are known.
func (t *Translator) markTouched(other owner, found bool) {
	if found {
		t.touched = append(t.touched, t.states[other])
	}
}

// countEndpoints returns the slices of a Service within its limit, and counts these and no others of it as serving.
func (t *Translator) countEndpoints(s *state) (within []*cluster.EndpointSlice, excess int) {
	if !s.rejected[endpoints] {
		within, excess = t.node.Limits.bounded(ofService(s.key, s.endpointSlices))
	}
	cluster.Differences(cluster.ListOf(s.counted...), cluster.ListOf(within...), t.serving.replace)
	s.counted = slices.Clone(within)
	return within, excess
}

// ofService returns the slices of a Service. Where the API server maintains the one of its own Service, slices that others made
// are ignored.
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

// outcome returns the health and the problems of all owners.
func (t *Translator) outcome() (health []Health, problems []Problem) {
	problems = slices.Concat(t.ownership.problems(func(o owner) string { return t.states[o].uid() }), t.shares.problems(t.states, t.node.Limits))
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
