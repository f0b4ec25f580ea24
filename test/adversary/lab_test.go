package adversary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// waitTimeout bounds every wait for a condition that normally holds at once.
var waitTimeout = testenv.Patience(time.Minute)

// lab has two nodes with pods of each kind, and an external client on the nodes' link.
type lab struct {
	t         *testing.T
	lab       *testbed.Lab
	manifests string
	nodes     []*node
	pods      map[string]*pod
	// externalSenders send from the nodes' link, by the index of the node that receives.
	externalSenders map[int]*pod
	// captures are those of all pods; wire is at the uplink of the second node.
	captures []*recording
	wire     *recording
	// sent looks for plaintext in what nodes that encrypt send; nil for others.
	sent   *capture.Wire
	tokens uint32
	// configuration is the one that runs.
	configuration configuration
	// kinds are those of the pods: each node has the same pods of each kind.
	kinds []podKind
}

// node is one node of a lab.
type node struct {
	*testbed.Node
	object *corev1.Node
	agent  *testbed.Process
}

// pod has a capture of the frames it receives, and a sender of each kind.
type pod struct {
	*testbed.Pod
	// app is its label.
	app  string
	node *node
	kind podKind
	// optsIn: it opts in to same-node sockets.
	optsIn bool
	// mac is the pod's, host that of the host end of its device.
	mac, host net.HardwareAddr
	capture   *recording
	senders
}

// Pods by their label app, and the policies that select them.
const (
	attackerApp = "attacker"   // no policy selects it
	restricted  = "restricted" // isolated for egress; may send markers
	admitted    = "admitted"   // isolated admits it
	isolated    = "isolated"   // isolated for ingress; admits the pod admitted, and markers from all
	unselected  = "unselected" // no policy selects it
)

// policies are the NetworkPolicies of a lab. Markers are datagrams to one port that all pods may use.
var policies = fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: vault, namespace: default}
spec: {podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}]}, {ports: [{protocol: UDP, port: %d}]}]}
---
`, isolated, admitted, markerPort) + egressPolicy(restricted)

// egressPolicy lets pods send markers and nothing else.
func egressPolicy(app string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[1]s, namespace: default}
spec: {podSelector: {matchLabels: {app: %[1]s}}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: %[2]d}]}]}
`, app, markerPort)
}

// externalNetworks are the CIDRs that externalIPs of Services may use.
const externalNetworks = "198.51.100.0/24,2001:db8:2::/48"

const (
	markerPort = 9999
	serverPort = 80   // of each pod
	vxlanPort  = 4789 // of each node, with tunnels
)

var labCount atomic.Int32

// podPrefixLengths are those of the first node's pod ranges: small, so that addresses are soon reused.
var podPrefixLengths = []int{28, 124}

// newLab starts a lab with agents, pods, policies and Services. The test's cleanup removes it.
func newLab(t *testing.T, flags ...string) *lab {
	t.Helper()
	return newLabOf(t, []podKind{ofRange}, flags...)
}

// newLabOf does so, with pods of these kinds.
func newLabOf(t *testing.T, kinds []podKind, flags ...string) *lab {
	t.Helper()
	programs(t)
	up, err := testbed.Up(t.Context(), testbed.Options{Name: fmt.Sprint(labPrefix, labCount.Add(1)), IPv6: true, Outside: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, lab: up, manifests: filepath.Join(up.Dir(), "manifests"), pods: map[string]*pod{}, externalSenders: map[int]*pod{}, kinds: kinds}
	t.Cleanup(l.down)
	if err := os.Mkdir(l.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, n := range up.Nodes() {
		object := netlab.NodeObject(n)
		if i == 0 {
			for j, cidr := range n.PodCIDRs {
				object.Spec.PodCIDRs[j] = netip.PrefixFrom(cidr.Addr(), podPrefixLengths[j]).String()
			}
		}
		l.nodes = append(l.nodes, &node{Node: n, object: object})
		l.writeObject(n.Name, object)
	}
	l.addSecondAddresses()
	l.writePools()
	l.start(flags...)
	l.addPods()
	l.write("policies.yaml", []byte(policies))
	l.writeServices()
	l.wire = startCapture(t, "wire", l.nodes[1].Netns, testbed.Uplink)
	return l
}

func (l *lab) down() {
	if l.t.Failed() {
		for _, n := range l.nodes {
			if log, err := os.ReadFile(netlab.LogFile(n.Node)); err == nil {
				const enough = 4 << 10
				l.t.Logf("agent of %s:\n%s", n.Name, log[max(0, len(log)-enough):])
			}
		}
	}
	if err := l.lab.Down(context.Background()); err != nil {
		l.t.Errorf("remove lab: %v", err)
	}
}

func (l *lab) writeObject(name string, object any) {
	l.t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		l.t.Fatal(err)
	}
	l.write(name+".yaml", text)
}

func (l *lab) write(name string, text []byte) {
	l.t.Helper()
	if err := netlab.WriteManifest(l.manifests, name, text); err != nil {
		l.t.Fatal(err)
	}
}

// start starts the agents of all nodes and waits until they are ready.
func (l *lab) start(flags ...string) {
	l.t.Helper()
	encryption := netlab.EncryptionOf(flags)
	l.giveKeys(encryption)
	for _, n := range l.nodes {
		agent, err := netlab.StartAgent(n.Node, netlab.AgentCommand(programs(l.t), n.Node, l.manifests, append([]string{"--external-ips=" + externalNetworks}, flags...)...))
		if err != nil {
			l.t.Fatal(err)
		}
		n.agent = agent
	}
	for _, n := range l.nodes {
		eventually(l.t, func() error {
			select {
			case <-n.agent.Ended:
				l.t.Fatalf("agent of %s ended: %v", n.Name, n.agent.Err)
			default:
			}
			return netlab.API(n.Node).Ready(l.t.Context())
		})
	}
	l.joinEncrypted(encryption)
}

// kill sends SIGKILL to the agents of all nodes.
func (l *lab) kill() {
	for _, n := range l.nodes {
		n.agent.Kill()
	}
}

// restart replaces the agents of all nodes by some with other flags.
func (l *lab) restart(flags ...string) {
	l.t.Helper()
	l.kill()
	l.start(flags...)
}

// addPods makes the pods: on the first node one of each kind, on the second the victims.
func (l *lab) addPods() {
	l.t.Helper()
	for i, apps := range [][]string{{attackerApp, restricted, admitted, isolated, unselected}, {isolated, unselected}} {
		for _, app := range apps {
			for _, kind := range l.kinds {
				l.addPodOf(kind, l.nodes[i], podName(app, kind), app)
			}
		}
	}
	l.writePods()
}

// addPod creates a pod of the kind that the configuration chooses.
func (l *lab) addPod(n *node, name, app string) *pod {
	l.t.Helper()
	return l.addPodOf(l.kindOf(app), n, name, app)
}

// addPodOf creates a pod with its capture and senders. writePods publishes its object.
func (l *lab) addPodOf(kind podKind, n *node, name, app string) *pod {
	l.t.Helper()
	name = fmt.Sprint(name, "-", n.Index)
	made, err := l.lab.NewPodNetns(l.t.Context(), n.Node, name)
	if err != nil {
		l.t.Fatal(err)
	}
	network := l.network(n, kind)
	add := func() error {
		if _, err := network.Add(l.t.Context(), made, netlab.RuntimeConf(made)); err != nil {
			return fmt.Errorf("ADD of %s: %w", name, errors.Join(err, network.Delete(l.t.Context(), netlab.RuntimeConf(made))))
		}
		return nil
	}
	if kind.isMacvlan() { // an emulated machine takes longer to verify the programs than the plugin waits
		eventually(l.t, add)
	} else if err := add(); err != nil {
		l.t.Fatal(err)
	}
	p := &pod{Pod: made, app: app, node: n, kind: kind}
	if err := p.Do(func() error {
		link, err := net.InterfaceByName(plugin.PodInterface)
		if err == nil {
			p.mac = link.HardwareAddr
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	endpoints, err := netlab.API(n.Node).Endpoints(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range endpoints {
		if e.Pod.Name == name {
			p.host, err = net.ParseMAC(e.HostMAC)
		}
	}
	if err != nil || p.host == nil {
		l.t.Fatalf("the agent reports no MAC address of %s (%v)", name, err)
	}
	p.capture = startCapture(l.t, name, p.Netns, plugin.PodInterface)
	l.captures = append(l.captures, p.capture)
	p.senders = openSenders(l.t, p.Netns, plugin.PodInterface)
	if kind.isMacvlan() {
		p.senders = p.withReportedDrops()
	}
	l.pods[name] = p
	return p
}

// deletePod deletes the pod's network, its namespace and its object.
func (l *lab) deletePod(p *pod) {
	l.t.Helper()
	if err := l.network(p.node, p.kind).Delete(l.t.Context(), netlab.RuntimeConf(p.Pod)); err != nil {
		l.t.Errorf("DEL of %s: %v", p.Name, err)
	}
	if err := l.lab.DeletePod(l.t.Context(), p.Pod); err != nil {
		l.t.Fatal(err)
	}
	delete(l.pods, p.Name)
	l.captures = slices.DeleteFunc(l.captures, func(c *recording) bool { return c == p.capture })
	l.writePods()
}

// reuseAddresses creates pods without an object until each address of one family of the deleted pods has a new pod.
// IPAM hands out the families independently.
func (l *lab) reuseAddresses(deleted []*pod, family int) []*pod {
	l.t.Helper()
	const enough = 16 // addresses of the node
	reusing, missing := make([]*pod, len(deleted)), len(deleted)
	for i := range enough {
		p := l.addPod(deleted[0].node, fmt.Sprint("new-", i), attackerApp)
		of := slices.IndexFunc(deleted, func(g *pod) bool { return g.Addresses[family] == p.Addresses[family] })
		if of < 0 {
			l.deletePod(p)
			continue
		}
		reusing[of] = p
		if missing--; missing == 0 {
			return reusing
		}
	}
	l.t.Fatalf("%d of %d addresses are not reused after %d pods", missing, len(deleted), enough)
	return nil
}

// network is the CNI configuration of pods of a kind.
func (l *lab) network(n *node, kind podKind) plugin.Network {
	l.t.Helper()
	conf := netlab.PluginConf(n.Node)
	if kind != ofRange {
		conf["ipPool"] = kind.pool(n)
	}
	w, err := netlab.NewNetwork(n.Node, programs(l.t), "1.1.0", conf)
	if err != nil {
		l.t.Fatal(err)
	}
	return w
}

// pod returns the pod of an app on the node with this index, of the kind that the configuration chooses.
func (l *lab) pod(app string, index int) *pod {
	return l.pods[fmt.Sprint(podName(app, l.kindOf(app)), "-", index)]
}

// writePods publishes the pods with their labels.
func (l *lab) writePods() {
	l.t.Helper()
	var text bytes.Buffer
	for _, p := range l.pods {
		annotations := ""
		if p.optsIn {
			annotations = "networking.beeline.dev/same-node: sockets"
		}
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {app: %s}, annotations: {%s}}\n"+
			"spec: {nodeName: %s}\nstatus: {podIPs: [{ip: %s}, {ip: '%s'}]}\n", p.Name, p.app, annotations, p.node.Name, p.Addresses[0], p.Addresses[1])
	}
	l.write("pods.yaml", text.Bytes())
}

// secondAddress is an address of a node that its Node object does not list, such as one of keepalived.
func secondAddress(n *node, family int) netip.Addr {
	if family == 0 {
		return netip.AddrFrom4([4]byte{192, 168, 77, byte(100 + n.Index)})
	}
	return netip.MustParseAddr(fmt.Sprint("fd77::10", n.Index))
}

func (l *lab) addSecondAddresses() {
	l.t.Helper()
	for _, n := range l.nodes {
		err := n.Netlink(func(h *netlink.Handle) error {
			uplink, err := h.LinkByName(testbed.Uplink)
			for family := range podPrefixLengths {
				at := secondAddress(n, family)
				if err == nil {
					err = h.AddrAdd(uplink, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(at, at.BitLen())), Flags: unix.IFA_F_NODAD})
				}
			}
			return err
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// service has the frontends of a victim.
type service struct {
	// markerNodePort translates to the port of markers.
	nodePort, markerNodePort uint16
	// cluster, balancer and external are its addresses, IPv4 first.
	cluster, balancer, external []netip.Addr
}

// services are those of the victims, by pod name.
var services = map[string]service{}

func init() {
	var names []string
	for _, kind := range allKinds {
		for _, app := range victimApps {
			names = append(names, podName(app, kind)+"-1", podName(app, kind)+"-2")
		}
	}
	for i, name := range names {
		services[name] = service{
			nodePort: uint16(31001 + i), markerNodePort: uint16(31101 + i),
			cluster:  []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.96.1.", 1+i)), netip.MustParseAddr(fmt.Sprint("fd00:96::1:", 1+i))},
			balancer: []netip.Addr{netip.MustParseAddr(fmt.Sprint("203.0.113.", 1+i)), netip.MustParseAddr(fmt.Sprint("2001:db8:1::", 1+i))},
			external: []netip.Addr{netip.MustParseAddr(fmt.Sprint("198.51.100.", 101+i)), netip.MustParseAddr(fmt.Sprint("2001:db8:2::", 101+i))},
		}
	}
}

// tunnelService has the nodes' VXLAN port as its backends, by a hand-written EndpointSlice.
var tunnelService = service{
	nodePort: 31030, markerNodePort: 31130,
	cluster:  []netip.Addr{netip.MustParseAddr("10.96.1.30"), netip.MustParseAddr("fd00:96::1:30")},
	balancer: []netip.Addr{netip.MustParseAddr("203.0.113.30"), netip.MustParseAddr("2001:db8:1::30")},
	external: []netip.Addr{netip.MustParseAddr("198.51.100.130"), netip.MustParseAddr("2001:db8:2::130")},
}

// writeServices publishes a Service for each victim, for TCP and UDP.
func (l *lab) writeServices() {
	l.t.Helper()
	var text strings.Builder
	for name, s := range services {
		if p := l.pods[name]; p != nil {
			s.write(&text, name, serverPort, serverPort, p.Addresses)
		}
	}
	var ends []netip.Addr
	for _, n := range l.nodes {
		ends = append(ends, n.Addresses[0].Addr(), n.Addresses[1].Addr())
	}
	tunnelService.write(&text, "tunnel", vxlanPort, vxlanPort, ends)
	l.write("services.yaml", []byte(text.String()))
}

// write adds a Service with its endpoints, in which addresses of IPv4 and IPv6 alternate.
func (s service) write(text *strings.Builder, name string, port, backendPort int, backends []netip.Addr) {
	fmt.Fprintf(text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: default}\n"+
		"spec: {type: LoadBalancer, clusterIPs: [%[2]s, '%[3]s'], externalIPs: [%[8]s, '%[9]s'], ports: [{name: tcp, port: %[4]d, protocol: TCP, nodePort: %[5]d}, "+
		"{name: udp, port: %[4]d, protocol: UDP, nodePort: %[5]d}, {name: marker, port: %[10]d, protocol: UDP, nodePort: %[11]d}]}\n"+
		"status: {loadBalancer: {ingress: [{ip: %[6]s}, {ip: '%[7]s'}]}}\n",
		name, s.cluster[0], s.cluster[1], port, s.nodePort, s.balancer[0], s.balancer[1], s.external[0], s.external[1], markerPort, s.markerNodePort)
	for i, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: %[1]s\n"+
			"metadata: {name: %[2]s-%[3]s, namespace: default, labels: {kubernetes.io/service-name: %[2]s}}\n"+
			"ports: [{name: tcp, port: %[4]d, protocol: TCP}, {name: udp, port: %[4]d, protocol: UDP}, {name: marker, port: %[5]d, protocol: UDP}]\nendpoints:\n",
			family, name, strings.ToLower(family), backendPort, markerPort)
		for j := i; j < len(backends); j += 2 {
			fmt.Fprintf(text, "- {addresses: ['%s'], conditions: {ready: true}}\n", backends[j])
		}
	}
}

// drops are the drop counters of both nodes, by reason.
func (l *lab) drops() map[string]uint64 {
	l.t.Helper()
	counts := map[string]uint64{}
	for _, n := range l.nodes {
		all, err := netlab.API(n.Node).Drops(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		for _, d := range all {
			counts[d.Reason] += d.Packets
		}
	}
	return counts
}

// eventually waits until the condition holds. The condition returns why it does not hold yet.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Since(begin) > waitTimeout {
			t.Fatalf("timed out after %s: %v", waitTimeout, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
