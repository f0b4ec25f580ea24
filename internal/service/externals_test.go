package service

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// tables are the default sizes.
var tables = Limits{Frontends: 65536, Backends: 262144}

// heap is the live heap after a collection, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// huge is a Service with many ports and external addresses: a small object.
func huge(namespace, name string, ports, addresses int) *cluster.Service {
	s := &cluster.Service{Namespace: namespace, Name: name, ClusterIPs: []netip.Addr{addr("10.96.0.66")}}
	for i := range ports {
		s.Ports = append(s.Ports, cluster.ServicePort{Name: fmt.Sprintf("p%d", i), Protocol: cluster.TCP, Number: uint16(1 + i)})
	}
	for i := range addresses {
		s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
	}
	return s
}

// bounded translates objects of one tenant beside a Service of another, and fails if that costs much time or memory.
func bounded(t *testing.T, objects ...any) (*Translator, Changes) {
	t.Helper()
	node := n1()
	node.Limits = tables
	w, tr := newObjects(), NewTranslator(node)
	w.put(simple("web", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} }))
	tr.Translate(w.snapshot(), nil)
	w.put(objects...)
	snapshot := w.snapshot()
	before, begin := heap(), time.Now()
	changes := tr.Translate(snapshot, nil)
	took := time.Since(begin)
	if after := heap(); after > before+32<<20 {
		t.Errorf("%d MiB more are in use", (after-before)>>20)
	}
	begin = time.Now()
	again := tr.Translate(snapshot, nil)
	if took > time.Second || time.Since(begin) > 100*time.Millisecond || len(again.Set) > 0 {
		t.Errorf("it took %v, and %v without a change, which set %d ports", took, time.Since(begin), len(again.Set))
	}
	size := 0
	for _, p := range changes.Problems {
		size += len(p.Text)
	}
	if len(changes.Problems) > 100 || size > 20000 {
		t.Errorf("%d problems of %d bytes", len(changes.Problems), size)
	}
	if len(tr.states[owner{key: cluster.Key{Namespace: "shop", Name: "web"}}].reported) != 1 {
		t.Error("the Service of another tenant does not answer")
	}
	return tr, changes
}

// frontends counts those of a namespace by whether they are external.
func frontends(tr *Translator, namespace string) (inside, external int) {
	for _, p := range tr.Ports() {
		for _, e := range p.Entries {
			switch {
			case p.Name.Service.Namespace != namespace:
			case e.Kind == KindExternalIP || e.Kind == KindLoadBalancer:
				external++
			default:
				inside++
			}
		}
	}
	return inside, external
}

// A Service of 54 KB with a million frontends, and one with five million, get the limit of one Service.
func TestHugeService(t *testing.T) {
	for _, addresses := range []int{1000, 5000} {
		tr, changes := bounded(t, huge("evil", "huge", 1000, addresses))
		if inside, external := frontends(tr, "evil"); inside != 1000 || external != tables.Frontends/serviceExternalPart {
			t.Errorf("it has %d frontends, and %d external ones", inside, external)
		}
		want := fmt.Sprintf("Service evil/huge: %d of its external addresses and ports do not answer: one Service has at most 1024 of them", 1000*addresses-1024)
		if len(changes.Problems) != 1 || !strings.HasPrefix(changes.Problems[0].Text, want) {
			t.Errorf("problems are %v, want one: %s", changes.Problems, want)
		}
	}
}

// Many of them in one namespace are reduced so that cluster IPs, and the frontends of other namespaces, fit.
func TestHugeNamespace(t *testing.T) {
	var all []any
	for i := range 60 {
		s := huge("evil", fmt.Sprintf("huge-%02d", i), 1000, 1000)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})}
		for n := range s.ExternalIPs {
			s.ExternalIPs[n] = netip.AddrFrom4([4]byte{198, 19, byte(i), byte(n)})
		}
		all = append(all, s)
	}
	modest := huge("good", "lb", 4, 100)
	tr, changes := bounded(t, append(all, modest)...)
	inside, external := frontends(tr, "evil")
	if external > tables.external()-400 || inside > tables.Frontends-tables.external()-5 {
		t.Errorf("the namespace has %d frontends, and %d external ones", inside, external)
	}
	if inside, external := frontends(tr, "good"); inside != 4 || external != 400 {
		t.Errorf("another namespace has %d frontends, and %d external ones", inside, external)
	}
	if !strings.Contains(fmt.Sprint(changes.Problems), `map services is full with 16384 entries: raise --services-max, or reduce namespace "evil"`) {
		t.Errorf("problems are %v", changes.Problems)
	}
}

// Handmade EndpointSlices are bounded, too: an API server accepts 1,000 endpoints and 20,000 ports.
func TestHugeEndpointSlices(t *testing.T) {
	var all []any
	all = append(all, &cluster.Service{Namespace: "evil", Name: "web", ClusterIPs: []netip.Addr{addr("10.96.0.66")},
		Ports: []cluster.ServicePort{{Name: "p0", Protocol: cluster.TCP, Number: 80}}})
	for n := range 3 {
		s := &cluster.EndpointSlice{Namespace: "evil", Name: fmt.Sprintf("web-%d", n), Service: "web"}
		for i := range 20000 {
			s.Ports = append(s.Ports, cluster.EndpointPort{Name: fmt.Sprintf("p%d", i), Protocol: cluster.TCP, Number: uint16(1 + i)})
		}
		for i := range 1000 {
			s.Endpoints = append(s.Endpoints, cluster.Endpoint{Address: netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), Ready: true, Serving: true})
		}
		all = append(all, s)
	}
	tr, changes := bounded(t, all...)
	if n := len(tr.serving.counts); n > tables.Backends {
		t.Errorf("%d backends are counted", n)
	}
	if !strings.Contains(fmt.Sprint(changes.Problems), "Service evil/web: the endpoints of 3 of its 3 EndpointSlices get no connections") {
		t.Errorf("problems are %v", changes.Problems)
	}
	// After its deletion nothing is left.
	w := newObjects()
	tr.Translate(w.snapshot(), nil)
	if len(tr.states) != 0 || len(tr.serving.counts) != 0 || len(tr.shares.spaces) != 0 || tr.shares.total != [resources]int{} {
		t.Errorf("kept: %d states, %d backends, %d namespaces, %v", len(tr.states), len(tr.serving.counts), len(tr.shares.spaces), tr.shares.total)
	}
}

// Each owner that loses frontends to others has one problem.
func TestManyConflicts(t *testing.T) {
	one, two := huge("evil", "one", 1000, 1), huge("evil", "two", 1000, 1)
	_, changes := bounded(t, one, two)
	if len(changes.Problems) != 1 || !strings.HasSuffix(changes.Problems[0].Text, "999 or more of its others do not either)") {
		t.Errorf("problems are %v", changes.Problems)
	}
}

// A namespace that needs more than the capacity gets what fits, in the order of names, and others get all of theirs,
// whatever the order of arrival.
func TestNamespacesShare(t *testing.T) {
	node := n1()
	node.Limits = Limits{Frontends: 40}
	node.NodePortAddresses = nil
	w, tr := newObjects(), NewTranslator(node)
	for i := range 45 {
		w.put(simple(fmt.Sprintf("s%02d", i), func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})} }))
	}
	if inside, _ := frontends2(tr, w, "shop"); inside != 40 {
		t.Errorf("alone it has %d, want 40", inside)
	}
	for i := range 5 {
		w.put(simple(fmt.Sprintf("s%02d", i), func(s *cluster.Service) {
			s.Namespace, s.ClusterIPs = "small", []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 2, byte(i)})}
		}))
	}
	big, _ := frontends2(tr, w, "shop")
	small, changes := frontends2(tr, w, "small")
	if big != 35 || small != 5 {
		t.Errorf("they have %d and %d, want 35 and 5", big, small)
	}
	if got := fmt.Sprint(changes.Problems); got != `[Service shop/s35: its addresses and ports do not answer: map services is full with 40 entries: raise --services-max, or reduce namespace "shop", whose demand of 45 is the largest (likewise 9 more Services there)]` {
		t.Errorf("problems are %s", got)
	}
	for i := range 10 {
		w.remove(simple(fmt.Sprintf("s%02d", i), nil))
	}
	if big, changes := frontends2(tr, w, "shop"); big != 35 || len(changes.Problems) != 0 {
		t.Errorf("with free capacity it has %d, and problems %v", big, changes.Problems)
	}
}

func frontends2(tr *Translator, w *objects, namespace string) (int, Changes) {
	changes := tr.Translate(w.snapshot(), nil)
	inside, _ := frontends(tr, namespace)
	return inside, changes
}
