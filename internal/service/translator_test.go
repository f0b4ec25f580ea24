package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// world makes snapshots as a Source does: an unchanged object stays the same pointer, and an unchanged list the same
// list.
type objects struct {
	services map[cluster.Key]*cluster.Service
	slices   map[cluster.Key]*cluster.EndpointSlice
	last     cluster.Snapshot
}

func newObjects() *objects {
	return &objects{services: map[cluster.Key]*cluster.Service{}, slices: map[cluster.Key]*cluster.EndpointSlice{}}
}

func (w *objects) snapshot() *cluster.Snapshot {
	w.last.Services = sorted(w.services, w.last.Services)
	if now := sorted(w.slices, w.last.EndpointSlices.Slice()); !slices.Equal(now, w.last.EndpointSlices.Slice()) {
		w.last.EndpointSlices = cluster.ListOf(now...)
	}
	snapshot := w.last
	return &snapshot
}

func sorted[T comparable](of map[cluster.Key]T, last []T) []T {
	keys := make([]cluster.Key, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, cluster.Key.Compare)
	list := make([]T, len(keys))
	for i, key := range keys {
		list[i] = of[key]
	}
	if slices.Equal(list, last) {
		return last
	}
	return list
}

// put adds Services and EndpointSlices, or replaces those of the same name.
func (w *objects) put(objects ...any) {
	for _, o := range objects {
		switch o := o.(type) {
		case *cluster.Service:
			w.services[o.Key()] = o
		case *cluster.EndpointSlice:
			w.slices[o.Key()] = o
		}
	}
}

func (w *objects) remove(objects ...any) {
	for _, o := range objects {
		switch o := o.(type) {
		case *cluster.Service:
			delete(w.services, o.Key())
		case *cluster.EndpointSlice:
			delete(w.slices, o.Key())
		}
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// simple is a Service with one port, 80.
func simple(name string, change func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{Namespace: "shop", Name: name, Ports: []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Number: 80}}}
	if change != nil {
		change(s)
	}
	return s
}

// slice is an EndpointSlice with ready endpoints on n1, port 8080.
func slice(of, name string, endpoints ...string) *cluster.EndpointSlice {
	s := &cluster.EndpointSlice{Namespace: "shop", Name: name, Service: of, Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Number: 8080}}}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, cluster.Endpoint{Address: addr(e), Ready: true, Serving: true, Node: "n1"})
	}
	return s
}

// reported formats changes as in cases.
func reported(c Changes) string {
	var b strings.Builder
	b.WriteString(show(c.Set))
	for _, name := range c.Removed {
		fmt.Fprintf(&b, "removed %s %s\n", name.Service, name.label())
	}
	for _, stopped := range c.GoneBackends {
		protocol := ""
		if slices.Contains(c.GoneUDP, stopped) {
			protocol = " UDP"
		}
		fmt.Fprintf(&b, "gone %s%s\n", stopped, protocol)
	}
	for _, h := range c.Health {
		fmt.Fprintf(&b, "health %s :%d %d\n", h.Service, h.Port, h.Endpoints)
	}
	for _, p := range c.Problems {
		fmt.Fprintf(&b, "%s\n", p)
	}
	return b.String()
}

func expect(t *testing.T, what string, got Changes, want string) {
	t.Helper()
	if diff := cmp.Diff(lines(want), reported(got)); diff != "" {
		t.Errorf("%s: (-want +got):\n%s", what, diff)
	}
}

// The life of a Service, whose parts arrive in any order.
func TestTranslatorLife(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	step := func(what, want string) {
		t.Helper()
		expect(t, what, tr.Translate(w.snapshot(), nil), want)
		expect(t, what+", again", Changes{Set: tr.Translate(w.snapshot(), nil).Set}, "")
	}
	web := simple("web", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} })

	w.put(slice("web", "web-b", "10.1.1.3"))
	step("a slice of an unknown Service", "")
	w.put(web)
	step("the Service", "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.3:8080 | pass")
	w.put(slice("web", "web-a", "10.1.1.2"), slice("other", "other-a", "10.1.1.9"))
	step("another slice", "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.1.3:8080 | pass")
	w.put(slice("web", "web-a", "10.1.1.2"))
	step("the same again in another object", "")
	w.put(slice("web", "web-b"), slice("web", "web-c", "10.1.1.3"))
	step("an endpoint moves to another slice", "")
	w.put(slice("other", "web-a", "10.1.1.2"))
	step("a slice changes the Service", "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.3:8080 | pass")
	w.put(slice("other", "web-a"))
	step("an endpoint ends", "gone 10.1.1.2:8080")
	w.remove(slice("web", "web-c"))
	step("the last slice goes", "http ClusterIP 10.96.0.9:80/TCP | refuse | pass\ngone 10.1.1.3:8080")
	w.put(slice("web", "web-c", "10.1.1.4"))
	step("and comes back", "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.4:8080 | pass")
	w.remove(web)
	step("the Service goes, its endpoint answers those it knows", "removed shop/web http (80/TCP)")
	w.remove(slice("web", "web-c"), slice("web", "web-b"))
	step("and ends", "gone 10.1.1.4:8080")
	w.remove(slice("", "web-a"), slice("", "other-a"))
	step("nothing is left", "gone 10.1.1.9:8080")
	if len(tr.states) != 0 || len(tr.serving.counts) != 0 || len(tr.ownership.requests) != 0 {
		t.Errorf("something is kept: %d states, %d backends, %d frontends", len(tr.states), len(tr.serving.counts), len(tr.ownership.requests))
	}
}

// Backends that end gracefully are not gone before they have ended.
func TestTranslatorGone(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	web := simple("web", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} })
	w.put(web, slice("web", "web-a", "10.1.1.2", "10.1.1.3"))
	expect(t, "two", tr.Translate(w.snapshot(), nil), "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.1.3:8080 | pass")

	ending := slice("web", "web-a", "10.1.1.2", "10.1.1.3")
	ending.Endpoints[1].Ready, ending.Endpoints[1].Terminating = false, true
	w.put(ending)
	expect(t, "ending", tr.Translate(w.snapshot(), nil), "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass")

	ended := slice("web", "web-a", "10.1.1.2", "10.1.1.3")
	ended.Endpoints[1] = cluster.Endpoint{Address: addr("10.1.1.3"), Terminating: true, Node: "n1"}
	w.put(ended)
	expect(t, "ended", tr.Translate(w.snapshot(), nil), "gone 10.1.1.3:8080")
}

// A pod with host ports is a backend itself.
func TestTranslatorGoneHostPort(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	port := func(number uint16) HostPort {
		return HostPort{Pod: cluster.Key{Namespace: "shop", Name: "dns"}, Protocol: cluster.UDP, Number: number,
			Address: addr("192.168.60.11"), Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:5353")}}
	}
	tr.Translate(w.snapshot(), []HostPort{port(53), port(54)})
	if got := tr.Translate(w.snapshot(), []HostPort{port(53)}); len(got.GoneBackends) > 0 {
		t.Errorf("gone are %v while another port uses it", got.GoneBackends)
	}
	expect(t, "no port", tr.Translate(w.snapshot(), nil), "removed shop/dns hostPort (53/UDP)\ngone 10.1.1.2:5353 UDP")
}

// The end of TCP is not reported while UDP continues, because it would flush UDP too.
func TestTranslatorGoneForTCPOnly(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	both := slice("dns", "dns-a", "10.1.1.2")
	both.Ports = append(both.Ports, cluster.EndpointPort{Name: "udp", Protocol: cluster.UDP, Number: 8080})
	w.put(both)
	tr.Translate(w.snapshot(), nil)
	udp := slice("dns", "dns-a", "10.1.1.2")
	udp.Ports = both.Ports[1:]
	w.put(udp)
	expect(t, "TCP ends", tr.Translate(w.snapshot(), nil), "")
	w.put(slice("dns", "dns-a"))
	expect(t, "UDP ends", tr.Translate(w.snapshot(), nil), "gone 10.1.1.2:8080 UDP")
}

// Backends of an earlier Translator that no longer serve are gone.
func TestTranslatorTakesBackends(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	w.put(slice("web", "web-a", "10.1.1.2"))
	at := netip.MustParseAddrPort
	tr.AddBackends([]Backend{{at("10.1.1.2:8080"), cluster.TCP}, {at("10.1.1.3:53"), cluster.UDP}, {at("[fd00:1::3]:53"), cluster.UDP}})
	expect(t, "first", tr.Translate(w.snapshot(), nil), "gone 10.1.1.3:53 UDP\ngone [fd00:1::3]:53 UDP")
}

// An incomplete list of a source removes nothing.
func TestTranslatorUnknown(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	w.put(simple("web", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} }))
	tr.Translate(w.snapshot(), nil)
	for _, kind := range []cluster.Kind{cluster.KindService, cluster.KindEndpointSlice} {
		empty := &cluster.Snapshot{Unknown: cluster.Kinds{kind}}
		expect(t, string(kind), tr.Translate(empty, []HostPort{{Pod: cluster.Key{Namespace: "shop", Name: "a"}, Protocol: cluster.TCP, Number: 80,
			Address: addr("192.168.60.11"), Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080")}}}), map[cluster.Kind]string{
			cluster.KindService: "hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080",
		}[kind])
	}
	if got := len(tr.Ports()); got != 2 {
		t.Errorf("%d ports, want 2", got)
	}
}

// Another configuration of the node changes what depends on it.
func TestTranslatorNode(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	nodePort := simple("port", func(s *cluster.Service) { s.Ports[0].NodePort = 30080 })
	hinted := slice("zoned", "zoned-a", "10.1.1.2", "10.1.1.3")
	hinted.Endpoints[0].Hints, hinted.Endpoints[1].Hints = &cluster.EndpointHints{ForZones: []string{"z1"}}, &cluster.EndpointHints{ForZones: []string{"z2"}}
	w.put(nodePort, simple("zoned", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} }), hinted)
	expect(t, "at first", tr.Translate(w.snapshot(), nil), `
		http NodePort 192.168.60.11:30080/TCP | refuse | refuse
		http NodePort [fd00:60::11]:30080/TCP | refuse | refuse
		http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass`)

	node := n1()
	node.NodePortAddresses = node.NodePortAddresses[:1]
	tr.SetNode(node)
	expect(t, "an address less", tr.Translate(w.snapshot(), nil), "http NodePort 192.168.60.11:30080/TCP | refuse | refuse")

	w.last.Nodes = []cluster.Node{{Name: "n1", Zone: "z2"}}
	expect(t, "the Node is in another zone", tr.Translate(w.snapshot(), nil), "http ClusterIP 10.96.0.9:80/TCP | 10.1.1.3:8080 | pass")

	tr.SetNode(NodeConfig{Name: "n1"})
	expect(t, "no NodePorts", tr.Translate(w.snapshot(), nil), "removed shop/port http (80/TCP)")

	hostPorts := []HostPort{{Pod: cluster.Key{Namespace: "shop", Name: "a"}, Protocol: cluster.TCP, Number: 80, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:8080")}}}
	expect(t, "host ports are nowhere", tr.Translate(w.snapshot(), hostPorts), "")
	tr.SetNode(NodeConfig{Name: "n1", HostPortAddresses: n1().HostPortAddresses[:1]})
	expect(t, "host ports are somewhere", tr.Translate(w.snapshot(), hostPorts), "hostPort HostPort 192.168.60.11:80/TCP | 10.1.1.2:8080 | 10.1.1.2:8080")
}

// More endpoints than a set can have.
func TestTooManyEndpoints(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	w.put(simple("web", func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.9")} }))
	for i := range 66 {
		w.put(largeSlice(i*100, 1000))
	}
	for key, s := range w.slices {
		s.Service = "web"
		w.slices[key] = s
	}
	got := tr.Translate(w.snapshot(), nil)
	if n := len(got.Set[0].Entries[0].Internal.Addresses); n != MaxBackends {
		t.Errorf("%d backends, want %d", n, MaxBackends)
	}
	expect(t, "problems", Changes{Problems: got.Problems}, "Service shop/web: port http (80/TCP): only the first 65535 endpoints get connections")
}

func TestTranslatorHealth(t *testing.T) {
	w, tr := newObjects(), NewTranslator(n1())
	local := func(s *cluster.Service) { s.ExternalLocal, s.HealthCheckNodePort = true, 30100 }
	w.put(simple("b", local), slice("b", "b-a", "10.1.1.2"), simple("a", local))
	expect(t, "two", tr.Translate(w.snapshot(), nil), "health shop/a :30100 0\nhealth shop/b :30100 1")
	w.put(slice("b", "b-a", "10.1.1.2", "10.1.1.3"))
	expect(t, "another endpoint", tr.Translate(w.snapshot(), nil), "health shop/a :30100 0\nhealth shop/b :30100 2")
	w.remove(simple("b", nil))
	expect(t, "one is gone", tr.Translate(w.snapshot(), nil), "health shop/a :30100 0")
}
