package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// A reused address has the identity of its current pod. First it belongs to a pod that a policy admits, whose object
// stays, then to pods that it does not admit, also while the agent's policies are not synced.
func TestPolicyAndReusedAddresses(t *testing.T) {
	t.Parallel()
	r := newReused(t)
	for i := range 16 {
		r.expectStranger(fmt.Sprint("known-", i))
	}
	r.kill(r.here)
	r.writeManifest("gate.yaml", []byte("kind: NetworkPolicy\nspec: ["))
	r.start(r.here, current(t))
	r.waitReady(r.here)
	r.waitProblem(r.here, "were there when the agent started")
	for i := range len(r.clients) {
		r.expectStranger(fmt.Sprint("unknown-", i))
	}
	r.writeManifest("gate.yaml", nil)
	r.waitNoProblem(r.here)
	r.expectStranger("last")
}

// reused is a node with few addresses. Policies know all of them as addresses of pods that may send to web.
type reused struct {
	*cluster
	here     *node
	web      netip.Addr
	received *listener // of web
	clients  map[netip.Addr]bool
}

// bystanders are pods that make a policy update last some milliseconds: a window for the identity of the previous pod.
const bystanders = 4000

func newReused(t *testing.T) *reused {
	t.Helper()
	r := &reused{cluster: newCluster(t, testbed.Options{}), clients: map[netip.Addr]bool{}}
	r.here = r.nodes[0]
	r.here.object.Spec.PodCIDRs = []string{netip.PrefixFrom(r.here.PodCIDRs[0].Addr(), 29).String()}
	r.writeNode(r.here)
	var others bytes.Buffer
	for i, at := 0, netip.MustParseAddr("10.200.0.0"); i < bystanders; i++ {
		at = at.Next()
		writePod(&others, "free", fmt.Sprint("other-", i), "client", at)
	}
	r.writeManifest("others.yaml", others.Bytes())
	r.start(r.here, current(t))
	r.waitReady(r.here)

	pod := r.addPod(r.here, "web")
	r.web = pod.Addresses[0]
	received, err := datagrams(pod.Netns, netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { received.socket.Close() })
	r.received = received
	r.object("default", "web", "web", r.web)
	r.writeManifest("policy.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\n"+
		"spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}]}]}\n"))
	r.waitStatus(r.here, func(s *agentapi.Status) error {
		if s.Policy.Pods != 1 {
			return fmt.Errorf("%d pods are selected", s.Policy.Pods)
		}
		return nil
	})
	for i := 0; ; i++ {
		pod := r.newPod(r.here, fmt.Sprint("client-", i))
		if _, err := r.standard(r.here).add(t.Context(), pod, confIn("free", pod)); err != nil {
			t.Fatal(err)
		}
		at := pod.Addresses[0]
		if r.clients[at] { // all addresses were used
			r.delPod(r.here, pod)
			return r
		}
		r.clients[at] = true
		r.object("free", pod.Name, "client", at) // stays when the pod is gone, like an object that is not deleted yet
		received.isReached(t, pod.Netns, r.web)
		r.delPod(r.here, pod)
	}
}

// object publishes a pod.
func (r *reused) object(namespace, name, app string, at netip.Addr) {
	r.t.Helper()
	var text bytes.Buffer
	writePod(&text, namespace, name, app, at)
	r.writeManifest("pod-"+name+".yaml", text.Bytes())
}

func writePod(to *bytes.Buffer, namespace, name, app string, at netip.Addr) {
	fmt.Fprintf(to, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {app: %s}}\nstatus: {podIPs: [{ip: %s}]}\n", name, namespace, app, at)
}

// expectStranger adds a pod without an object, which sends to web as soon as it has an address, and deletes it.
func (r *reused) expectStranger(name string) {
	r.t.Helper()
	pod := r.newPod(r.here, name)
	at := r.addReady(pod)
	if !r.clients[at] {
		r.t.Errorf("%s has %s, which no client had: %v", name, at, r.clients)
	}
	before := r.received.from(at).Load()
	r.sendAtOnce(pod, at)
	r.received.isReached(r.t, r.here.Netns, r.web)
	if n := r.received.from(at).Load() - before; n > 0 {
		r.t.Errorf("%d datagrams of %s at %s arrive", n, name, at)
	}
	r.delPod(r.here, pod)
}

// addReady adds a pod as the plugin does, but configures everything except the address before it calls the agent.
func (r *reused) addReady(pod *testbed.Pod) netip.Addr {
	r.t.Helper()
	conf := runtimeConf(pod)
	var reply *agentapi.Endpoint
	err := r.here.Do(func() error {
		pair, err := device.Pods.Create(device.PodSpec{Kind: device.Kind(testenv.DeviceKind()), ContainerID: conf.ContainerID, IfName: conf.IfName, Netns: conf.NetNS})
		if err != nil {
			return err
		}
		ready := device.PodConfig{Gateways: []netip.Addr{netip.MustParseAddr("169.254.1.1")}, HostMAC: pair.HostMAC}
		if err := device.Pods.Configure(conf.NetNS, conf.IfName, ready); err != nil {
			return err
		}
		reply, err = r.here.api().Add(context.Background(), agentapi.AddRequest{Endpoint: agentapi.Endpoint{
			Attachment: agentapi.Attachment{ContainerID: conf.ContainerID, IfName: conf.IfName},
			Network:    networkName,
			Netns:      conf.NetNS,
			Pod:        agentapi.PodRef{Namespace: "free", Name: pod.Name},
			HostDevice: pair.HostName, HostIfIndex: pair.HostIndex, HostMAC: pair.HostMAC.String(), PodMAC: pair.PodMAC.String(),
		}})
		return err
	})
	if err != nil {
		r.t.Fatalf("ADD of %s: %v", pod.Name, err)
	}
	return reply.Addresses[0]
}

// sendAtOnce makes the pod send many datagrams to web at once, from an address that its device need not have.
func (r *reused) sendAtOnce(pod *testbed.Pod, at netip.Addr) {
	r.t.Helper()
	const datagrams = 200
	err := pod.Do(func() error {
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			if controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1) }); controlErr != nil {
				return controlErr
			}
			return err
		}}
		socket, err := config.ListenPacket(r.t.Context(), "udp4", netip.AddrPortFrom(at, 0).String())
		if err != nil {
			return err
		}
		defer socket.Close()
		for range datagrams {
			if _, err := socket.WriteTo([]byte("it is me again"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.web, backendPort))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("send from %s: %v", at, err)
	}
}
