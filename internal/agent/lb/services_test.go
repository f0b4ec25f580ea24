package lb

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/service"
)

// fakeTable holds ports by name, like the datapath.
type fakeTable struct {
	ports         map[service.PortName]service.Port
	syncs, sweeps int
	// fail is the error of a write; the ports are written nevertheless, unless broken.
	fail   error
	broken bool
	// backends are those of an earlier agent.
	backends []service.Backend
	// writing, if it is not nil, is sent to before a write, which waits until it is sent to once more.
	writing chan struct{}
}

func (f *fakeTable) Backends() ([]service.Backend, error) { return f.backends, nil }

func (f *fakeTable) Sync(all []service.Port) (int, error) {
	f.syncs++
	if f.broken {
		return 0, f.fail
	}
	f.ports = map[service.PortName]service.Port{}
	return len(all), f.Apply(all, nil)
}

func (f *fakeTable) Apply(set []service.Port, removed []service.PortName) error {
	if f.writing != nil {
		f.writing <- struct{}{}
		f.writing <- struct{}{}
	}
	if f.broken {
		return f.fail
	}
	for _, name := range removed {
		delete(f.ports, name)
	}
	for _, p := range set {
		f.ports[p.Name] = p
	}
	return f.fail
}

func (f *fakeTable) Sweep(time.Time) error {
	f.sweeps++
	return f.fail
}

func (f *fakeTable) All() ([]lb.ServicePort, error) { return nil, nil }

func (f *fakeTable) names() (all []string) {
	for name := range f.ports {
		all = append(all, name.Service.Name)
	}
	slices.Sort(all)
	return all
}

// left is a port that an earlier agent left in the table.
var left = service.PortName{Service: cluster.Key{Namespace: "default", Name: "left"}, Number: 80, Protocol: cluster.TCP}

func newFake() (*fakeTable, *Services) {
	table := &fakeTable{ports: map[service.PortName]service.Port{left: {Name: left}}}
	return table, newServices(table, slog.New(slog.DiscardHandler))
}

func webSnapshot(names ...string) *cluster.Snapshot {
	s := &cluster.Snapshot{Since: time.Now()}
	for i, name := range names {
		s.Services = append(s.Services, &cluster.Service{
			Namespace: "default", Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)})},
			Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Number: 80}},
		})
	}
	return s
}

func expectPorts(t *testing.T, step string, table *fakeTable, want string) {
	t.Helper()
	if got := strings.Join(table.names(), " "); got != want {
		t.Errorf("%s: the table holds %q, want %q", step, got, want)
	}
}

// Ports of an earlier agent are not removed before all Services are synced; new ones are written at once.
func TestServicesKeepWhatIsNotKnown(t *testing.T) {
	table, s := newFake()
	pass := func() {
		if err := s.Pass(); err != nil {
			t.Fatal(err)
		}
	}
	s.Update(&cluster.Snapshot{Unknown: cluster.AllKinds})
	pass()
	expectPorts(t, "without a node", table, "left")
	s.UpdateNode(service.NodeConfig{Name: "a", HostPortAddresses: addrs("192.0.2.1")})
	pass()
	expectPorts(t, "nothing known", table, "left")
	s.UpdateHostPorts([]service.HostPort{{Pod: cluster.Key{Name: "pod"}, Protocol: cluster.TCP, Number: 8080, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:80")}}})
	pass()
	expectPorts(t, "a port of a pod", table, "left pod")
	half := webSnapshot("web")
	half.Unknown = cluster.Kinds{cluster.KindEndpointSlice}
	s.Update(half)
	pass()
	expectPorts(t, "Services without endpoints", table, "left pod")
	if s.Filled() || s.Working() {
		t.Errorf("Services without endpoints count as known: filled %t, working %t", s.Filled(), s.Working())
	}
	requests := 0
	s.reconcile = func() { requests++ }
	partial := webSnapshot("web")
	partial.Partial = cluster.Kinds{cluster.KindEndpointSlice}
	s.Update(partial)
	pass()
	expectPorts(t, "in part", table, "left pod web")
	if s.Status().Synced || table.syncs > 0 {
		t.Errorf("counts as synced after %d syncs", table.syncs)
	}
	if !s.Working() || requests != 1 {
		t.Errorf("what is known is in the table: working %t, requests %d times", s.Working(), requests)
	}
	withoutANode := webSnapshot("web")
	withoutANode.Incomplete, withoutANode.Partial = true, cluster.Kinds{cluster.KindNode}
	s.Update(withoutANode)
	pass()
	expectPorts(t, "whole, but for a Node", table, "pod web")
	if !s.Working() || !s.Status().Synced {
		t.Error("does not count as synced")
	}
	s.Update(webSnapshot("web"))
	pass()
	s.Update(webSnapshot("other", "web"))
	pass()
	s.Update(webSnapshot("other"))
	pass()
	expectPorts(t, "changed", table, "other pod")
	if table.syncs != 1 {
		t.Errorf("%d syncs: changes are not applied alone", table.syncs)
	}
}

// A failed write is a problem until it succeeds; a broken table is written anew.
//
// ADD, DEL and queries about Services do not wait for a pass, whatever it writes and for however long. Only a pod's
// own host ports need a pass.
func TestAddWaitsForNoServices(t *testing.T) {
	table, s := newFake()
	s.UpdateNode(service.NodeConfig{})
	table.writing = make(chan struct{})
	s.Update(webSnapshot("web"))
	passed := make(chan error, 1)
	go func() { passed <- s.Pass() }()
	<-table.writing // it is in progress, and stays so
	s.UpdateHostPorts([]service.HostPort{{Pod: cluster.Key{Name: "pod"}, Protocol: cluster.TCP, Number: 80}})
	s.UpdateNode(service.NodeConfig{})
	s.Update(webSnapshot("web", "other"))
	if o := s.Status(); o.Filled {
		t.Error("an unfinished write counts as done")
	}
	select {
	case err := <-passed:
		t.Fatalf("the pass has ended (%v): nothing was tested", err)
	default:
	}
	<-table.writing
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestServicesTryAgain(t *testing.T) {
	table, s := newFake()
	s.UpdateNode(service.NodeConfig{Name: "a"})
	table.fail, table.broken = errors.New("no such map"), true
	s.Update(webSnapshot("web"))
	if err := s.Pass(); err == nil || s.Working() {
		t.Errorf("error %v, working %t", err, s.Working())
	}
	expectPorts(t, "broken", table, "left")
	s.sweep(time.Now())
	if o := s.Status(); len(o.All()) != 1 || !strings.Contains(o.All()[0], "no such map") {
		t.Errorf("problems are %q", o.All())
	}
	table.fail, table.broken = &lb.PortError{Port: left, Err: errors.New("map is full")}, false
	s.sweep(time.Now())
	expectPorts(t, "one is refused", table, "web")
	if o := s.Status(); !s.Working() || len(o.All()) != 1 || !strings.Contains(o.All()[0], "Service default/left, port 80: map is full") {
		t.Errorf("working %t, problems %q", s.Working(), o.All())
	}
	syncs := table.syncs
	s.Update(webSnapshot("web"))
	_ = s.Pass()
	s.sweep(time.Now())
	if len(s.Status().All()) != 1 {
		t.Errorf("problems are %q while it is still rejected", s.Status().All())
	}
	table.fail = nil
	s.sweep(time.Now())
	if o := s.Status(); len(o.All()) != 0 || table.syncs != syncs {
		t.Errorf("problems are %q after %d more syncs", o.All(), table.syncs-syncs)
	}
}

// A node that is a backend itself has to be known where its replies leave.
func TestServicesFindTheNodeAmongBackends(t *testing.T) {
	_, s := newFake()
	asked := 0
	s.reconcile = func() { asked++ }
	s.UpdateNode(service.NodeConfig{Name: "a", HostPortAddresses: addrs("192.0.2.1")})
	for i, backend := range []string{"10.1.1.2", "192.0.2.1", "10.1.1.2"} {
		with := webSnapshot("web")
		with.EndpointSlices = cluster.ListOf(&cluster.EndpointSlice{
			Namespace: "default", Name: "web-1", Service: "web", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 8080}},
			Endpoints: []cluster.Endpoint{{Address: addr(backend), Ready: true, Serving: true}},
		})
		s.Update(with)
		if err := s.Pass(); err != nil {
			t.Fatal(err)
		}
		if here := i > 0; s.backendLocal.Load() != here || asked != 1+min(i, 1) {
			t.Errorf("backend %s: local %t, %d requests", backend, s.backendLocal.Load(), asked)
		}
	}
}

// A node may get an address that is a backend already.
func TestServicesFindTheNodeAtANewAddress(t *testing.T) {
	_, s := newFake()
	with := webSnapshot("web")
	with.EndpointSlices = cluster.ListOf(&cluster.EndpointSlice{
		Namespace: "default", Name: "web-1", Service: "web", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 8080}},
		Endpoints: []cluster.Endpoint{{Address: addr("192.0.2.1"), Ready: true, Serving: true}},
	})
	s.Update(with)
	for i, own := range []string{"192.0.2.2", "192.0.2.1"} {
		s.UpdateNode(service.NodeConfig{Name: "a", HostPortAddresses: addrs(own)})
		if err := s.Pass(); err != nil || s.backendLocal.Load() != (i == 1) {
			t.Errorf("node at %s: local %t, %v", own, s.backendLocal.Load(), err)
		}
	}
}

// The table is swept also while there are problems.
func TestServicesSweepInTrouble(t *testing.T) {
	table, s := newFake()
	s.health = func([]netip.Addr, []service.Health) []string { return []string{"port is taken"} }
	s.sweep(time.Now())
	s.UpdateNode(service.NodeConfig{Name: "a"})
	s.Update(webSnapshot("web"))
	s.sweep(time.Now())
	s.sweep(time.Now())
	if table.sweeps != 3 {
		t.Errorf("%d sweeps, want 3", table.sweeps)
	}
}

// Removed backends are reported once.
func TestServicesReportGoneBackends(t *testing.T) {
	_, s := newFake()
	var gone []netip.AddrPort
	s.gone = func(all, _ []netip.AddrPort) { gone = append(gone, all...) }
	s.UpdateNode(service.NodeConfig{Name: "a"})
	with := webSnapshot("web")
	with.EndpointSlices = cluster.ListOf(&cluster.EndpointSlice{
		Namespace: "default", Name: "web-1", Service: "web", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Number: 8080}},
		Endpoints: []cluster.Endpoint{{Address: addr("10.1.1.2"), Ready: true, Serving: true}},
	})
	for _, snapshot := range []*cluster.Snapshot{with, webSnapshot("web"), webSnapshot("web")} {
		s.Update(snapshot)
		if err := s.Pass(); err != nil {
			t.Fatal(err)
		}
	}
	if len(gone) != 1 || gone[0] != netip.MustParseAddrPort("10.1.1.2:8080") {
		t.Errorf("reported are %v", gone)
	}
}

// Backends that an earlier agent left and the cluster does not have are removed once all is synced.
func TestServicesReportBackendsGoneMeanwhile(t *testing.T) {
	table, s := newFake()
	at := netip.MustParseAddrPort("10.1.1.9:53")
	table.backends = []service.Backend{{Address: at, Protocol: cluster.UDP}}
	var gone []netip.AddrPort
	s.gone = func(all, _ []netip.AddrPort) { gone = append(gone, all...) }
	s.UpdateNode(service.NodeConfig{Name: "a"})
	partial := webSnapshot("web")
	partial.Partial = cluster.Kinds{cluster.KindEndpointSlice}
	for _, step := range []struct {
		snapshot *cluster.Snapshot
		gone     int
	}{{&cluster.Snapshot{Unknown: cluster.AllKinds}, 0}, {partial, 0}, {webSnapshot("web"), 1}, {webSnapshot("web"), 1}} {
		s.Update(step.snapshot)
		if err := s.Pass(); err != nil {
			t.Fatal(err)
		}
		table.backends = nil // written over
		if len(gone) != step.gone {
			t.Fatalf("reported are %v", gone)
		}
	}
	if gone[0] != at {
		t.Errorf("reported are %v", gone)
	}
}

func TestHostPortConflicts(t *testing.T) {
	at := func(pod, ip, protocol string, port uint16) agentapi.Endpoint {
		m := agentapi.PortMapping{HostPort: port, ContainerPort: 80, Protocol: protocol}
		if ip != "" {
			m.HostIP = addr(ip)
		}
		return agentapi.Endpoint{Pod: agentapi.PodRef{Namespace: "default", Name: pod}, PortMappings: []agentapi.PortMapping{m}}
	}
	for name, c := range map[string]struct {
		has, wants agentapi.Endpoint
		conflict   bool
	}{
		"the same":               {at("a", "", "TCP", 80), at("b", "", "TCP", 80), true},
		"another port":           {at("a", "", "TCP", 80), at("b", "", "TCP", 81), false},
		"another protocol":       {at("a", "", "TCP", 80), at("b", "", "UDP", 80), false},
		"SCTP's own":             {at("a", "", "TCP", 80), at("b", "", "SCTP", 80), false},
		"the same of SCTP":       {at("a", "", "SCTP", 80), at("b", "", "SCTP", 80), true},
		"another address":        {at("a", "192.0.2.1", "TCP", 80), at("b", "192.0.2.2", "TCP", 80), false},
		"the same address":       {at("a", "192.0.2.1", "TCP", 80), at("b", "192.0.2.1", "TCP", 80), true},
		"all and one":            {at("a", "", "TCP", 80), at("b", "192.0.2.1", "TCP", 80), true},
		"all of IPv4 and one":    {at("a", "0.0.0.0", "TCP", 80), at("b", "192.0.2.1", "TCP", 80), true},
		"all of IPv6 and IPv4":   {at("a", "::", "TCP", 80), at("b", "192.0.2.1", "TCP", 80), false},
		"the pod is made anew":   {at("a", "", "TCP", 80), at("a", "", "TCP", 80), false},
		"all of either family":   {at("a", "0.0.0.0", "TCP", 80), at("b", "::", "TCP", 80), false},
		"all, and all of a kind": {at("a", "", "TCP", 80), at("b", "::", "TCP", 80), true},
	} {
		err := CheckPorts("n1", slices.Values([]agentapi.Endpoint{c.has}), c.wants)
		if agentapi.HasCode(err, agentapi.CodePortTaken) != c.conflict {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// Of two sandboxes of one pod the later one comes last, and has the port.
func TestHostPortsOfEndpoints(t *testing.T) {
	mapping := []agentapi.PortMapping{{HostPort: 53, ContainerPort: 5353, Protocol: "UDP", HostIP: addr("192.0.2.1")}}
	pod := agentapi.PodRef{Namespace: "default", Name: "dns"}
	endpoints := []agentapi.Endpoint{
		{HostDevice: "bl1", Pod: pod, PortMappings: mapping, Addresses: addrs("10.1.1.3", "fd00:1::3"), Added: time.Unix(200, 0)},
		{HostDevice: "bl2", Pod: pod, PortMappings: mapping, Addresses: addrs("10.1.1.2"), Added: time.Unix(100, 0)},
		{HostDevice: "bl3", Addresses: addrs("10.1.1.4")},
	}
	got := HostPorts(slices.Values(endpoints))
	if len(got) != 2 || got[0].Backends[0] != netip.MustParseAddrPort("10.1.1.2:5353") || len(got[1].Backends) != 2 {
		t.Fatalf("got %+v", got)
	}
	if h := got[1]; h.Pod != (cluster.Key{Namespace: "default", Name: "dns"}) || h.Protocol != cluster.UDP || h.Number != 53 || h.Address != addr("192.0.2.1") {
		t.Errorf("got %+v", h)
	}
}

// An error of the table about other Services does not fail a pod's host ports.
func TestOnlyOfOthers(t *testing.T) {
	pod := cluster.Key{Namespace: "default", Name: "a"}
	of := func(name string) error {
		return &lb.PortError{Port: service.PortName{Service: cluster.Key{Namespace: "default", Name: name}, Port: "hostPort"}, Err: errors.New("full")}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"of others":                   {errors.Join(of("b"), of("c")), true},
		"of the pod":                  {errors.Join(of("b"), of("a")), false},
		"of the table":                {errors.New("no such map"), false},
		"of both":                     {errors.Join(of("b"), errors.New("no such map")), false},
		"of the Service of that name": {&lb.PortError{Port: service.PortName{Service: pod, Port: "http"}}, true},
		"of more others":              {errors.Join(of("b"), &lb.MorePortsError{Ports: []service.PortName{{Service: pod}}}), true},
		"of the pod, not reported":    {errors.Join(of("b"), &lb.MorePortsError{Ports: []service.PortName{{Service: pod, Port: "hostPort"}}}), false},
		"of nested others":            {errors.Join(nil, errors.Join(of("b"))), true},
	} {
		if got := onlyOfOthers(c.err, pod); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(all ...string) (parsed []netip.Addr) {
	for _, s := range all {
		parsed = append(parsed, addr(s))
	}
	return parsed
}
