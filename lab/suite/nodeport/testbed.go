package nodeport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// member is a network brought up on a lab of its own, with the backend, a generator at the first node's port of the
// switch and servers in the pod.
type member struct {
	*suite.Testbed
	ipv6      bool // what clients, Services and servers speak
	cores     cores
	backend   *testbed.Pod
	generator *packetgen.Generator
	devices   devices
	// placement is the one that the lab is arranged for, if it is.
	placement result.Placement
	arranged  bool
	sink      *packetgen.Sink
	// wireSink hands packets on to the second node. It counts them too, but the sink in the pod is the one that is
	// read.
	wireSink *packetgen.Sink
	// scale is result.NodePort's.
	scale float64
}

// devices are the ends of the pairs between the switch and the two nodes.
type devices struct {
	forwarder, backend         *device // of the nodes
	forwarderPort, backendPort *device // of the switch
}

func (d devices) all() []*device {
	return []*device{d.forwarder, d.backend, d.forwarderPort, d.backendPort}
}

// reserved are the ports of NodePorts, which no client gets.
const reserved = "30900-30940"

// openLab brings up a lab of two nodes with a client between them, and has fill do the rest. After an error nothing of
// it is left.
func (s *Suite) openLab(ctx context.Context, n network.Network, fill func(*member) error) (*member, error) {
	m := &member{ipv6: s.IPv6, cores: s.cores}
	_, err := suite.Open(ctx, n, testbed.Options{Nodes: 2, IPv6: s.IPv6, MTU: s.MTU, Outside: true}, func(t *suite.Testbed) error {
		m.Testbed = t
		t.OnClose(m.closeSinks)
		m.findDevices()
		return fill(m)
	})
	return m, err
}

// open brings a network up and proves that both Services work. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network) (*member, error) {
	return s.openLab(ctx, n, func(m *member) error {
		for _, d := range m.devices.all() {
			if err := d.takeFrames(ctx); err != nil {
				return err
			}
		}
		if err := m.devices.forwarderPort.completeChecksums(ctx); err != nil {
			return err
		}
		if err := m.disableRedirects(); err != nil {
			return err
		}
		if err := m.bringUp(ctx); err != nil {
			return err
		}
		for _, netns := range []testbed.Netns{m.Lab.Client(), m.backend.Netns} {
			if err := m.Prepare(netns, reserved); err != nil {
				return err
			}
		}
		if err := m.arrange(result.OneCore, carryTCP); err != nil {
			return err
		}
		if err := m.verifyTCP(ctx); err != nil {
			return err
		}
		if err := m.makeGenerator(); err != nil {
			return err
		}
		if err := m.verifyUDP(ctx); err != nil {
			return err
		}
		servers := workload.NewServers(m.backend.On(m.cores.measured), workload.Target{Address: m.backendAddress(), Ports: tcpPorts()})
		m.OnClose(servers.Close)
		m.Servers[result.CrossNode] = servers
		return nil
	})
}

func (m *member) findDevices() {
	m.devices = devices{
		forwarder:     &device{netns: m.forwarder().Netns, name: testbed.Uplink},
		backend:       &device{netns: m.far().Netns, name: testbed.Uplink},
		forwarderPort: &device{netns: m.Lab.Client(), name: m.Lab.SwitchPort(m.forwarder())},
		backendPort:   &device{netns: m.Lab.Client(), name: m.Lab.SwitchPort(m.far())},
	}
}

// forwarder is the node that clients send to, far the one where the backend is.
func (m *member) forwarder() *testbed.Node { return m.Lab.Node(0) }
func (m *member) far() *testbed.Node       { return m.Lab.Node(1) }

// bringUp starts the network, the backend and the Service proxy.
func (m *member) bringUp(ctx context.Context) (err error) {
	proxy, isProxy := m.Network.(network.Proxy)
	if isProxy {
		if err := m.ServeObjects(ctx, policies.Namespace(policies.Default, nil)); err != nil {
			return err
		}
	}
	if err := m.Up(ctx); err != nil {
		return err
	}
	if m.backend, err = m.AddPod(ctx, 1, policies.Pod{Namespace: policies.Default, Name: "backend"}); err != nil {
		return err
	}
	m.Server[result.CrossNode] = m.backend
	if !isProxy {
		return m.routeThrough()
	}
	if err := m.API.Put(objects(m.Lab.Nodes(), m.backend.Node, m.backendAddress())...); err != nil {
		return fmt.Errorf("make Services: %w", err)
	}
	return proxy.StartProxy(ctx, m.Lab)
}

// family is the index of an address of the family among those of a node, a pod or the client.
func (m *member) family() int {
	if m.ipv6 {
		return 1
	}
	return 0
}

func (m *member) backendAddress() netip.Addr { return m.backend.Addresses[m.family()] }

// target is where clients send to over one protocol: the NodePort, or the pod itself where nothing translates.
func (m *member) target(nodePort, port uint16) netip.AddrPort {
	if m.API == nil {
		return netip.AddrPortFrom(m.backendAddress(), port)
	}
	return netip.AddrPortFrom(m.forwarder().Addresses[m.family()].Addr(), nodePort)
}

// makeGenerator prepares frames of clients behind the one on the switch, by way of the first node.
func (m *member) makeGenerator() error {
	from, err := hardwareAddress(m.devices.forwarderPort)
	if err != nil {
		return err
	}
	to, err := hardwareAddress(m.devices.forwarder)
	if err != nil {
		return err
	}
	clients := []netip.Prefix{testbed.ClientNetworkIPv4, testbed.ClientNetworkIPv6}[m.family()]
	m.generator, err = packetgen.NewGenerator(m.Lab.Client().On(m.cores.measured), m.devices.forwarderPort.name, packetgen.Frames{
		SourceMAC: from, DestinationMAC: to,
		Source:      netip.AddrPortFrom(clients.Addr().Next(), firstClientPort),
		Destination: m.target(udpNodePort, udpPort),
		Flows:       flows, Ports: portsOfClient,
	})
	return err
}

// Flows are spread over clients with so many ports each.
const (
	firstClientPort = 20000
	portsOfClient   = 16
)

func hardwareAddress(d *device) (mac net.HardwareAddr, err error) {
	err = d.netns.Do(func() error {
		i, err := net.InterfaceByName(d.name)
		if err != nil {
			return fmt.Errorf("find device %s: %w", d.name, err)
		}
		mac = i.HardwareAddr
		return nil
	})
	return mac, err
}

// cpuTime is what the NAPI threads of the lab have used.
func (m *member) cpuTime() (sum time.Duration) {
	for _, d := range m.devices.all() {
		sum += d.cpuTime()
	}
	return sum
}
