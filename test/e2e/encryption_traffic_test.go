package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// selecting are pods or namespaces with this label.
func selecting(label, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
}

// TestEncryptionPolicy enforces policies between nodes of an API server, to which the agents write their keys: by the labels of
// pods and namespaces, at both ends, and on connections that are open.
func TestEncryptionPolicy(t *testing.T) {
	t.Parallel()
	for _, mode := range encryptions {
		t.Run(mode.Name, func(t *testing.T) {
			needEncryption(t, mode)
			testPolicyBetweenNodes(t, "--encryption="+mode.Name)
		})
	}
}

func testPolicyBetweenNodes(t *testing.T, flags ...string) {
	c := newAPILab(t, flags...)
	w := c.tapWire()
	first, second := c.nodes[0], c.nodes[1]
	guests := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "guests", Labels: map[string]string{"team": "guests"}}}
	if err := c.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, guests); err != nil {
		t.Fatal(err)
	}
	web := c.podOn(first, "default", "web", "u1")
	client, stranger := c.podOn(second, "default", "client", "u2"), c.podOn(second, "default", "stranger", "u3")
	guest := c.podOn(second, "guests", "guest", "u4")
	c.putPodOn(first, "default", web, "u1", "web")
	c.putPodOn(second, "default", client, "u2", "client")
	c.putPodOn(second, "default", stranger, "u3", "stranger")
	c.putPodOn(second, "guests", guest, "u4", "guest")
	serveName(t, web, backendPort)
	for _, from := range []machine{client, stranger, guest} {
		c.until(true, from, web)
	}
	stays := startStreamsBetween(t, client, web)
	stops := []conversation{converse(t, stranger, web, otherPort, 0), converse(t, stranger, web, otherPort, 1)}
	for _, open := range stops {
		if err := passes(open.client, open.server, patience); err != nil {
			t.Fatal(err)
		}
	}

	policy := func(name, app string, spec networkingv1.NetworkPolicySpec) {
		t.Helper()
		spec.PodSelector = *selecting("app", app)
		if err := c.server.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	from := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers}}}
	}
	clients := networkingv1.NetworkPolicyPeer{PodSelector: selecting("app", "client")}
	policy("web", "web", from(clients, networkingv1.NetworkPolicyPeer{NamespaceSelector: selecting("team", "guests")}))
	c.until(false, stranger, web)
	c.until(true, client, web)
	c.until(true, guest, web)
	for _, open := range stops {
		eventually(t, func() error {
			if err := passes(open.client, open.server, deniedFor); err == nil {
				return errors.New("an open connection goes on that the policy denies")
			}
			return nil
		})
	}
	stays.waitProgress()
	for from, want := range map[string]bool{"default/stranger": false, "default/client": true, "guests/guest": true} {
		a, err := second.api().ExplainPolicy(t.Context(), agentapi.PolicyQuestion{From: from, To: web.addresses[0].String(), Port: fmt.Sprint(backendPort), Protocol: "TCP"})
		if err != nil || a.Allowed != want {
			t.Errorf("explained %s to web: %+v, %v; want %t", from, a, err, want)
		}
	}

	policy("web", "web", from(clients))
	c.until(false, guest, web)
	c.putPodOn(second, "default", stranger, "u3", "client")
	c.until(true, stranger, web)
	stays.waitProgress()
	stays.finish()
	policy("out", "client", networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}})
	c.until(false, client, web)
	c.until(false, stranger, web)
	for _, n := range c.nodes {
		c.waitNoProblem(n)
	}
	w.expect(t, "policies")
}

// startStreamsBetween starts a stream of each family.
func startStreamsBetween(t *testing.T, from, to machine) *traffic {
	t.Helper()
	tr := &traffic{t: t}
	for _, a := range to.addresses {
		s, err := startStream(from.name+" to "+to.name+" "+family(a), from.netns, to.netns, a)
		tr.add(s, err)
		tr.streams = append(tr.streams, s)
	}
	tr.waitProgress()
	return tr
}

// TestEncryptionPools has pods of IPPools: in the routed underlay, whose router is the other node, and with macvlan devices, whose
// frames leave by the wire unless they go to the cluster. What goes to other nodes and their pods is encrypted.
func TestEncryptionPools(t *testing.T) {
	t.Parallel()
	for _, mode := range encryptions {
		for _, k := range []struct{ device, routing string }{{testenv.DeviceKind(), "ebpf"}, {testenv.DeviceKind(), "kernel"}, {string(device.Macvlan), "ebpf"}} {
			t.Run(fmt.Sprint(mode.Name, " ", k.device, " ", k.routing), func(t *testing.T) {
				needEncryption(t, mode)
				testPools(t, k.device, "--routing="+k.routing, "--encryption="+mode.Name)
			})
		}
	}
}

func testPools(t *testing.T, kind string, flags ...string) {
	c := newAPILab(t, flags...)
	first, second := c.nodes[0], c.nodes[1]
	near, far := c.podOn(first, "default", "near", "u1"), c.podOn(second, "default", "far", "u2")
	var pool v1alpha1.IPPool
	if err := yaml.Unmarshal(poolOf("office", first, kind, 200, 209), &pool); err != nil {
		t.Fatal(err)
	}
	for _, a := range second.Addresses {
		pool.Spec.Gateways = append(pool.Spec.Gateways, a.Addr().String())
	}
	if err := c.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &pool); err != nil {
		t.Fatal(err)
	}
	add := func(n *node, name string) machine {
		t.Helper()
		for try := range 30 { // the agent may not have read the pool yet
			m, err := c.tryPodOn(n, "default", fmt.Sprint(name, "-", try), fmt.Sprint(name, try))
			switch {
			case err != nil && kind == string(device.Macvlan): // an emulated machine verifies the programs for longer than the plugin waits
				t.Log(err)
			case err != nil:
				t.Fatal(err)
			case n.Addresses[0].Masked().Contains(m.addresses[0]):
				return m
			}
		}
		t.Fatalf("no pod on %s has addresses of the pool", n.Name)
		return machine{}
	}
	one, two := add(first, "one"), add(second, "two")
	for _, m := range []machine{one, two} {
		for _, a := range m.addresses {
			c.poolRanges = append(c.poolRanges, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	as := func(m machine) *testbed.Pod {
		return &testbed.Pod{Name: m.name, Netns: m.netns, Addresses: m.addresses}
	}
	pairs := [][2]*testbed.Pod{
		{as(one), as(two)}, {as(two), as(one)}, {as(one), as(far)}, {as(far), as(one)}, {as(near), as(two)}, {as(two), as(near)},
		{asPod(first, as(two)), as(two)}, {withoutSource(as(two)), asPod(first, as(two))},
	}
	for _, pair := range pairs { // once the nodes know the pods' addresses
		eventually(t, func() error { return c.reach(pair[0], pair[1]) })
	}
	w := c.tapWire()
	for _, pair := range pairs {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	for _, n := range c.nodes {
		c.waitNoProblem(n)
	}
	if first.encryption != (netlab.Encryption{}) {
		w.expect(t, "pods of a pool")
	}
}

// TestEncryptionServices connects to Services in all ways that have a hop between nodes: ClusterIPs from sockets and packet by
// packet, NodePorts from outside at both nodes, from a pod and from a node. The second hop is never plaintext, and with
// --nodeport-mode=dsr and XDP nothing is lost: replies pass the node that took the connection.
func TestEncryptionServices(t *testing.T) {
	t.Parallel()
	for _, mode := range encryptions {
		for _, flags := range [][]string{{"--nodeport-acceleration=tc"}, {"--nodeport-acceleration=xdp", "--nodeport-mode=dsr"}} {
			t.Run(mode.Name+" "+strings.Join(flags, " "), func(t *testing.T) {
				needEncryption(t, mode)
				b := newServiceLab(t, append(flags, "--encryption="+mode.Name)...)
				w := b.tapWire(b.outside.netns)
				b.expectServicesBetweenNodes()
				w.expect(t, "Services")
			})
		}
	}
}

// expectServicesBetweenNodes has a Service whose only backend is on one of the nodes. Clients outside and in pods use the
// NodePorts of both nodes; a node uses its own, since packets from node to node are not encrypted.
func (b *serviceLab) expectServicesBetweenNodes() {
	b.t.Helper()
	service := func(policy string) []byte {
		more := "  type: NodePort\n  sessionAffinity: ClientIP\n  externalTrafficPolicy: " + policy + "\n"
		yaml := nodePorts(serviceYAML("web", serviceOfFar, more, b.far), nodePort)
		return bytes.ReplaceAll(yaml, []byte("conditions: {ready: true}"), []byte("nodeName: "+b.nodes[1].Name+", conditions: {ready: true}"))
	}
	b.writeManifest("service.yaml", service("Cluster"))
	for _, n := range []machine{b.node, b.peer} {
		for i, address := range n.addresses {
			to := netip.AddrPortFrom(address, nodePort)
			eventually(b.t, func() error { return exchangeTCP(b.outside.netns, b.far.netns, netip.AddrPort{}, to) })
			if err := exchangeTCP(b.pod.netns, b.far.netns, netip.AddrPort{}, to); err != nil {
				b.t.Errorf("a pod to the NodePort at %s: %v", to, err)
			}
			if _, err := externalUDPAt(b.outside, b.far, to); err != nil {
				b.t.Errorf("UDP to the NodePort at %s: %v", to, err)
			}
			if err := exchangeTCP(b.pod.netns, b.far.netns, netip.AddrPort{}, netip.AddrPortFrom(serviceOfFar[i], servicePort)); err != nil {
				b.t.Errorf("packet by packet to the Service: %v", err)
			}
		}
	}
	serveName(b.t, b.far, backendPort)
	for i, a := range serviceOfFar {
		for _, client := range []machine{b.pod, b.node, b.far, b.peer} {
			b.expectReply(client, netip.AddrPortFrom(a, servicePort), b.far)
			for _, at := range []machine{b.node, b.peer} {
				if isNode := client.name == b.node.name || client.name == b.peer.name; !isNode || client.name == at.name {
					b.expectReply(client, netip.AddrPortFrom(at.addresses[i], nodePort), b.far)
				}
			}
		}
	}
	b.wantNoDropsOn(b.nodes[:2]) // with policy Local there are some
	b.writeManifest("service.yaml", service("Local"))
	for i := range serviceOfFar {
		eventually(b.t, func() error {
			if dials(b.outside.netns, netip.AddrPortFrom(b.node.addresses[i], nodePort)) == nil {
				return errors.New("policy Local: the node without the backend takes a connection")
			}
			return nil
		})
		to := netip.AddrPortFrom(b.peer.addresses[i], nodePort)
		if got, err := fetchOutside(b.outside, to); err != nil || got != b.far.name {
			b.t.Errorf("policy Local, external to %s: reply of %q, %v", to, got, err)
		}
	}
}

// TestEncryptionServicesOfStack does so where the node's stack translates: rules like kube-proxy's.
func TestEncryptionServicesOfStack(t *testing.T) {
	t.Parallel()
	for _, mode := range encryptions {
		for _, flag := range []string{"--services=kube-proxy", "--routing=kernel"} {
			t.Run(fmt.Sprint(mode.Name, " ", flag), func(t *testing.T) {
				needEncryption(t, mode)
				s := newServices(t, flag, "--encryption="+mode.Name)
				w := s.tapWire(s.outside.netns)
				s.expectThroughTunnels()
				w.expect(t, "Services of the stack")
			})
		}
	}
}
