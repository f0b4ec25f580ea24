package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// probe repeats connections that are not allowed.
type probe struct {
	stopping              atomic.Bool
	running               sync.WaitGroup
	attempts, connections atomic.Int64
}

// probe makes these machines dial the pod until finish.
func (g *policyLab) probe(from ...machine) *probe {
	return probeAt(at(backendPort, g.pod.addresses...), from...)
}

// probeAt makes these machines dial all targets until finish.
func probeAt(targets []netip.AddrPort, from ...machine) *probe {
	p := &probe{}
	for _, e := range from {
		for _, to := range targets {
			p.running.Go(func() {
				for !p.stopping.Load() {
					err := e.netns.Do(func() error {
						conn, err := net.DialTimeout("tcp", to.String(), 20*time.Millisecond)
						if err == nil {
							conn.Close()
						}
						return err
					})
					p.attempts.Add(1)
					if err == nil {
						p.connections.Add(1)
					}
				}
			})
		}
	}
	return p
}

func (p *probe) finish(t *testing.T) {
	t.Helper()
	p.stopping.Store(true)
	p.running.Wait()
	if p.attempts.Load() == 0 || p.connections.Load() > 0 {
		t.Errorf("%d connections of %d succeeded that no policy allows", p.connections.Load(), p.attempts.Load())
	}
	t.Logf("%d attempts", p.attempts.Load())
}

// A pod that a policy isolates is isolated from its first moment: neither packets that are sent to its address before
// ADD nor its own pass. The same holds while the agent's policies are not synced. A pod that no policy selects sends and
// receives.
func TestPodsAddedUnderDenial(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			g.writeManifest("denied.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: nothing, namespace: denied}\n"+
				"spec: {podSelector: {}, policyTypes: [Ingress, Egress]}\n"))
			g.waitStatus(g.here, func(s *agentapi.Status) error {
				if s.Policy.Policies != 1 {
					return fmt.Errorf("%d policies", s.Policy.Policies)
				}
				return nil
			})
			echo, err := datagrams(g.near.netns, g.near.addresses[0])
			if err != nil {
				t.Fatal(err)
			}
			defer echo.socket.Close()
			const pods = 8
			next := g.near.addresses[0]
			var wanted []netip.Addr
			for range pods + 1 {
				next = next.Next()
				wanted = append(wanted, next)
			}
			var strangers []*sender
			for _, e := range []machine{g.near, g.far} {
				strangers = append(strangers, sendTo(t, e.netns, wanted...))
			}
			add := func(i int, namespace string) (received *listener, sends *sender) {
				pod := g.newPod(g.here, fmt.Sprintf("%s-%d", namespace, i))
				netns := pod.Netns
				received, err := datagrams(netns, netip.IPv4Unspecified())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { received.socket.Close() })
				sends = sendTo(t, netns, g.near.addresses[0])
				if _, err := g.standard(g.here).add(t.Context(), pod, confIn(namespace, pod)); err != nil {
					t.Fatal(err)
				}
				if at := pod.Addresses[0]; at != wanted[i] {
					t.Errorf("%s has %s, but datagrams are sent to %s", pod.Name, at, wanted[i])
				}
				return received, sends
			}
			expectDenied := func(i int) {
				t.Helper()
				received, sends := add(i, "denied")
				for _, s := range append(strangers, sends) {
					s.waitProgress(t)
				}
				received.isReached(t, g.node.netns, wanted[i])
				echo.isReached(t, g.node.netns, g.near.addresses[0])
				if all, allowed := received.count.Load(), received.from(g.node.addresses[0]).Load(); all > allowed {
					t.Errorf("denied-%d received %d datagrams of others than its node", i, all-allowed)
				}
				if n := echo.from(wanted[i]).Load(); n > 0 {
					t.Errorf("denied-%d sent %d datagrams", i, n)
				}
				sends.finish()
			}
			for i := range pods / 2 {
				expectDenied(i)
			}
			g.kill(g.here)
			g.writeManifest("gate.yaml", []byte("kind: NetworkPolicy\nspec: ["))
			g.start(g.here, current(t), flags...)
			g.waitReady(g.here)
			g.waitProblem(g.here, "were there when the agent started")
			for i := pods / 2; i < pods; i++ {
				expectDenied(i)
			}
			g.writeManifest("gate.yaml", nil)
			received, _ := add(pods, "free")
			eventually(t, func() error {
				for _, e := range []machine{g.near, g.far} {
					if received.from(e.addresses[0]).Load() == 0 {
						return fmt.Errorf("a pod without policies does not receive from %s", e.name)
					}
				}
				if echo.from(wanted[pods]).Load() == 0 {
					return errors.New("nothing arrives from a pod without policies")
				}
				return nil
			})
		})
	}
}

// confIn returns the runtime configuration of a pod in a namespace.
func confIn(namespace string, pod *testbed.Pod) *libcni.RuntimeConf {
	conf := runtimeConf(pod)
	for i := range conf.Args {
		if conf.Args[i][0] == "K8S_POD_NAMESPACE" {
			conf.Args[i][1] = namespace
		}
	}
	return conf
}

// While an agent's policies are not synced, added pods have traffic with their node only.
func TestPodsAddedBeforePoliciesAreKnown(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			programs := current(t)
			c := newCluster(t, testbed.Options{IPv6: true})
			c.writeManifest("policies.yaml", []byte("kind: NetworkPolicy\nspec: ["))
			for _, n := range c.nodes {
				c.start(n, programs, flags...)
			}
			for _, n := range c.nodes {
				c.waitProblem(n, "NetworkPolicies", "not understood")
			}
			var pods []machine
			for i, n := range []*node{c.nodes[0], c.nodes[0], c.nodes[1]} {
				p := c.addPod(n, fmt.Sprintf("p%d", i))
				pods = append(pods, machine{p.Name, p.Netns, p.Addresses})
			}
			serveName(t, pods[0], backendPort)
			reach := func(from machine, want bool) {
				t.Helper()
				for _, a := range pods[0].addresses {
					eventually(t, func() error {
						err := dials(from.netns, netip.AddrPortFrom(a, backendPort))
						if err == nil && !want {
							return fmt.Errorf("%s reaches %s", from.name, a)
						} else if want {
							return err
						}
						return nil
					})
				}
			}
			reach(machine{name: "node", netns: c.nodes[0].Netns}, true)
			for _, from := range pods[1:] {
				reach(from, false)
			}
			c.writeManifest("policies.yaml", nil)
			for _, from := range pods[1:] {
				reach(from, true)
			}
			for _, n := range c.nodes {
				c.waitNoProblem(n)
			}
		})
	}
}

// listener counts the datagrams that it receives.
type listener struct {
	socket   *net.UDPConn
	count    atomic.Int64
	bySender sync.Map // of netip.Addr to *atomic.Int64
	sockets  sync.Map // of netip.AddrPort: senders
}

// from counts the datagrams from an address.
func (l *listener) from(a netip.Addr) *atomic.Int64 {
	count, _ := l.bySender.LoadOrStore(a, &atomic.Int64{})
	return count.(*atomic.Int64)
}

// isReached waits until a datagram from this namespace arrives at this address. Earlier datagrams of others have arrived by
// then.
func (l *listener) isReached(t *testing.T, from testbed.Netns, at netip.Addr) {
	t.Helper()
	var socket *net.UDPConn
	err := from.Do(func() (err error) {
		socket, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, backendPort)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	own := socket.LocalAddr().(*net.UDPAddr).AddrPort()
	eventually(t, func() error {
		if _, err := socket.Write([]byte("hello")); err != nil {
			return err
		}
		if _, ok := l.sockets.Load(own); !ok {
			return fmt.Errorf("nothing arrives from %s at %s", own, at)
		}
		return nil
	})
}

func datagrams(at testbed.Netns, address netip.Addr) (l *listener, err error) {
	l = &listener{}
	err = at.Do(func() (err error) {
		l.socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, backendPort)))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			_, sender, err := l.socket.ReadFromUDPAddrPort(make([]byte, 64))
			if err != nil {
				return
			}
			sender = netip.AddrPortFrom(sender.Addr().Unmap(), sender.Port())
			l.from(sender.Addr()).Add(1) // before count, which is never larger than the sum
			l.count.Add(1)
			l.sockets.Store(sender, true)
		}
	}()
	return l, nil
}

// sender sends to some addresses each millisecond until finish, and ignores errors.
type sender struct {
	stopping atomic.Bool
	ended    sync.WaitGroup
	// rounds counts rounds without an error, in which it had an address and a route.
	rounds atomic.Int64
}

// sendTo starts a sender, until the test ends.
func sendTo(t *testing.T, from testbed.Netns, to ...netip.Addr) *sender {
	t.Helper()
	var socket *net.UDPConn
	err := from.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{}
	s.ended.Go(func() {
		defer socket.Close()
		for !s.stopping.Load() {
			sent := 0
			for _, a := range to {
				if _, err := socket.WriteToUDPAddrPort([]byte("ping"), netip.AddrPortFrom(a, backendPort)); err == nil {
					sent++
				}
			}
			if sent == len(to) {
				s.rounds.Add(1)
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(s.finish)
	return s
}

func (s *sender) finish() {
	s.stopping.Store(true)
	s.ended.Wait()
}

// waitProgress waits for more rounds.
func (s *sender) waitProgress(t *testing.T) {
	t.Helper()
	const enough = 20
	before := s.rounds.Load()
	eventually(t, func() error {
		if n := s.rounds.Load() - before; n < enough {
			return fmt.Errorf("%d datagrams sent, want %d", n, enough)
		}
		return nil
	})
}

// webForClients allows pods with the label app: client at the port named web.
const webForClients = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}"

// newAdmitted is a policy lab with a policy that allows near to reach pod, and no others.
func newAdmitted(t *testing.T) *policyLab {
	g := newPolicyLab(t)
	g.labels["far"] = "stranger"
	g.writePods()
	g.policy("web", webForClients)
	g.expectAdmitted()
	return g
}

func (g *policyLab) expectAdmitted() {
	g.t.Helper()
	g.expectPorts(g.near, g.pod, backendPort)
	g.expectPorts(g.far, g.pod)
	g.expectPorts(g.outside, g.pod)
}

// An agent without endpoint files finds by address which policies select its pods.
func TestPolicyOverLostFiles(t *testing.T) {
	t.Parallel()
	g := newAdmitted(t)
	probe := g.probe(g.far, g.outside)
	g.kill(g.here)
	g.removeEndpointFiles(g.here)
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.expectAdmitted()
	probe.finish(t)
	g.noPolicy("web")
	g.expectPorts(g.far, g.pod, backendPort, otherPort)
	g.waitNoProblem(g.here)
}

// An agent that starts with a broken manifest of Pods keeps the policies as they were, and allows added pods traffic with
// their node only.
func TestPolicyOverBrokenPods(t *testing.T) {
	t.Parallel()
	g := newAdmitted(t)
	probe := g.probe(g.far, g.outside)
	g.kill(g.here)
	g.writeManifest("pods.yaml", []byte("kind: Pod\nmetadata: ["))
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.waitProblem(g.here, "were there when the agent started")
	g.expectAdmitted()
	added := g.addPod(g.here, "late")
	late := machine{"late", added.Netns, added.Addresses}
	serveName(t, late, backendPort)
	serveName(t, late, otherPort)
	g.expectPorts(g.near, late)
	g.expectPorts(g.node, late, backendPort, otherPort)
	g.writePods()
	g.expectPorts(g.near, late, backendPort, otherPort)
	g.expectAdmitted()
	probe.finish(t)
	g.waitNoProblem(g.here)
}
