package nodeport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// testbed is a network brought up on a lab of its own, with the backend, a generator at the first node's port of the switch
// and servers in the pod.
type Testbed struct {
	network   network.Network
	ipv6      bool // what clients, Services and servers speak
	lab       *testbed.Lab
	server    *apiserver.Server
	cores     cores
	backend   *testbed.Pod
	servers   *workload.Servers
	generator *packetgen.Generator
	devices   devices
	// placement is the one that the lab is arranged for, if it is.
	placement result.Placement
	arranged  bool
	sink      *packetgen.Sink
	// wireSink hands packets on to the second node; it counts them, too, but the sink in the pod is the one that is read.
	wireSink *packetgen.Sink
	// scale is result.NodePort's; flows is how many flows there are; turn counts the samples of TCP.
	scale float64
	flows int
	turn  int
}

// devices are the ends of the pairs between the switch and the two nodes.
type devices struct {
	forwarder, backend         *device // of the nodes
	forwarderPort, backendPort *device // of the switch
}

func (d devices) all() []*device {
	return []*device{d.forwarder, d.backend, d.forwarderPort, d.backendPort}
}

// downTimeout is how long taking a lab down may take; it happens after an interrupt too.
const downTimeout = 30 * time.Second

// endpointSysctls are set where TCP connections begin and end: see package measure.
var endpointSysctls = []struct{ name, value string }{
	{"net/ipv4/ip_local_port_range", "1024 65535"},
	{"net/ipv4/ip_local_reserved_ports", "30900-30940"},
	{"net/ipv4/tcp_tw_reuse", "1"},
}

// openTestbed brings a network up and proves that both Services work. After an error nothing of it is left.
func openTestbed(ctx context.Context, c network.Network, p Plan) (b *Testbed, err error) {
	b = &Testbed{network: c, ipv6: p.IPv6, cores: p.cores, flows: p.Flows}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	b.lab, err = testbed.Up(ctx, testbed.Options{
		Name: fmt.Sprintf("np%d-%s", os.Getpid(), c.Name()), Nodes: 2, IPv6: p.IPv6, MTU: p.MTU, Outside: true, Network: c.Name(),
	})
	if err != nil {
		return b, fmt.Errorf("bring up lab of %s: %w", c.Name(), err)
	}
	b.findDevices()
	for _, d := range b.devices.all() {
		if err := d.takeFrames(ctx); err != nil {
			return b, err
		}
	}
	if err := b.devices.forwarderPort.completeChecksums(ctx); err != nil {
		return b, err
	}
	if err := b.keepClients(); err != nil {
		return b, err
	}
	if err := b.bringUp(ctx); err != nil {
		return b, err
	}
	for _, place := range []testbed.Place{b.lab.Client(), b.lab.Place(b.backend)} {
		for _, s := range endpointSysctls {
			if err := place.WriteSysctl(s.name, s.value); err != nil {
				return b, fmt.Errorf("prepare ends of %s: %w", c.Name(), err)
			}
		}
	}
	if err := b.arrange(result.OneCore, carryTCP); err != nil {
		return b, err
	}
	if err := b.verifyTCP(ctx); err != nil {
		return b, err
	}
	if err := b.makeGenerator(p.Flows); err != nil {
		return b, err
	}
	if err := b.verifyUDP(ctx); err != nil {
		return b, err
	}
	b.servers = workload.NewServers(b.lab.Place(b.backend).On(b.cores.measured), workload.Target{Address: b.backendAddress(), Ports: tcpPorts()})
	return b, nil
}

func (b *Testbed) findDevices() {
	b.devices = devices{
		forwarder:     &device{place: b.forwarder().Place(), name: testbed.Uplink},
		backend:       &device{place: b.far().Place(), name: testbed.Uplink},
		forwarderPort: &device{place: b.lab.Client(), name: b.lab.SwitchPort(b.forwarder())},
		backendPort:   &device{place: b.lab.Client(), name: b.lab.SwitchPort(b.far())},
	}
}

// forwarder is the node that clients send to, far the one where the backend is.
func (b *Testbed) forwarder() *testbed.Node { return b.lab.Node(0) }
func (b *Testbed) far() *testbed.Node       { return b.lab.Node(1) }

// bringUp starts the network, the backend, and what takes care of Services.
func (b *Testbed) bringUp(ctx context.Context) (err error) {
	p, isProxy := b.network.(network.Proxy)
	if isProxy {
		var kubeconfig string
		if b.server, kubeconfig, err = network.ServeObjects(ctx, b.lab); err != nil {
			return err
		}
		p = p.WithKubeconfig(kubeconfig)
		b.network = p
	}
	if err := b.network.Up(ctx, b.lab); err != nil {
		return fmt.Errorf("bring up %s: %w", b.network.Name(), err)
	}
	put := func(...runtime.Object) error { return nil }
	if isProxy {
		if err := b.server.Put(policies.Namespace(policies.Default, nil)); err != nil {
			return err
		}
		put = b.server.Put
	}
	known := policies.Pod{Namespace: policies.Default, Name: "backend"}
	if b.backend, _, err = network.AddKnownPod(ctx, b.network, b.lab, b.far(), known, put); err != nil {
		return err
	}
	if !isProxy {
		return b.routeThrough()
	}
	if err := b.server.Put(objects(b.lab.Nodes(), b.backend.Node, b.backendAddress())...); err != nil {
		return fmt.Errorf("make Services: %w", err)
	}
	return p.StartProxy(ctx, b.lab)
}

// family is the index of an address of the family among those of a node, a pod or the client.
func (b *Testbed) family() int {
	if b.ipv6 {
		return 1
	}
	return 0
}

func (b *Testbed) backendAddress() netip.Addr { return b.backend.Addresses[b.family()] }

// target is where clients send to over one protocol: the NodePort, or the pod itself where nothing translates.
func (b *Testbed) target(nodePort, port uint16) netip.AddrPort {
	if b.server == nil {
		return netip.AddrPortFrom(b.backendAddress(), port)
	}
	return netip.AddrPortFrom(b.forwarder().Addresses[b.family()].Addr(), nodePort)
}

// makeGenerator prepares frames of clients behind the one on the switch, by way of the first node.
func (b *Testbed) makeGenerator(flows int) error {
	from, err := hardwareAddress(b.devices.forwarderPort)
	if err != nil {
		return err
	}
	to, err := hardwareAddress(b.devices.forwarder)
	if err != nil {
		return err
	}
	clients := []netip.Prefix{testbed.ClientNetworkIPv4, testbed.ClientNetworkIPv6}[b.family()]
	b.generator, err = packetgen.NewGenerator(b.lab.Client().On(b.cores.measured), b.devices.forwarderPort.name, packetgen.Frames{
		SourceMAC: from, DestinationMAC: to,
		Source:      netip.AddrPortFrom(clients.Addr().Next(), firstClientPort),
		Destination: b.target(udpNodePort, udpPort),
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
	err = d.place.Do(func() error {
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
func (b *Testbed) cpuTime() (sum time.Duration) {
	for _, d := range b.devices.all() {
		sum += d.cpuTime()
	}
	return sum
}

// cgroups are those in which everything of the lab runs.
func (b *Testbed) cgroups() []string {
	return []string{b.forwarder().Cgroup, b.far().Cgroup, b.lab.Client().Cgroup}
}

func (b *Testbed) record(ctx context.Context) result.Network {
	facts := b.network.Facts(ctx, b.lab)
	return result.Network{Name: b.network.Name(), Description: b.network.Description(), Version: facts["agent"], Facts: facts}
}

// close ends everything of the testbed, whatever the state it is in.
func (b *Testbed) close() error {
	errs := []error{b.closeSinks()}
	if b.generator != nil {
		errs = append(errs, b.generator.Close())
	}
	if b.servers != nil {
		errs = append(errs, b.servers.Close())
	}
	if b.server != nil {
		b.server.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if b.lab != nil {
		if err := b.lab.Down(ctx); err != nil {
			errs = append(errs, fmt.Errorf("take down lab of %s: %w", b.network.Name(), err))
		}
	}
	return errors.Join(errs...)
}
