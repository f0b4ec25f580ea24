package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/beeline-cni/beeline/lab/topology"
)

// probe tries all the time what is not allowed.
type probe struct {
	stopping              atomic.Bool
	running               sync.WaitGroup
	attempts, connections atomic.Int64
}

// probe has these ends dial the pod until finish.
func (g *guarded) probe(from ...worldEnd) *probe {
	p := &probe{}
	for _, e := range from {
		for _, a := range g.pod.addresses {
			p.running.Go(func() {
				for !p.stopping.Load() {
					err := e.place.Do(func() error {
						conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(a, backendPort).String(), 20*time.Millisecond)
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
		t.Errorf("%d connections of %d came about that no policy allows", p.connections.Load(), p.attempts.Load())
	}
	t.Logf("%d attempts", p.attempts.Load())
}

// A pod that a policy isolates is never open, from its first moment on: neither to those who send to its address before it has one, nor
// for what it sends itself. One beside them that no policy selects is heard and hears.
func TestPodsAddedUnderDenial(t *testing.T) {
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, flags...)
			g.writeManifest("denied.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: nothing, namespace: denied}\n"+
				"spec: {podSelector: {}, policyTypes: [Ingress, Egress]}\n"))
			eventually(t, func() error {
				s, err := g.here.api().Status(t.Context())
				if err == nil && s.Policy.Policies != 1 {
					err = fmt.Errorf("%d policies", s.Policy.Policies)
				}
				return err
			})
			echo, err := datagrams(g.near.place, g.near.addresses[0])
			if err != nil {
				t.Fatal(err)
			}
			defer echo.socket.Close()
			const pods = 8
			var end, endDenied atomic.Bool
			var senders, denied sync.WaitGroup
			defer senders.Wait()
			defer end.Store(true)
			next := g.near.addresses[0]
			var wanted []netip.Addr
			for range pods + 1 {
				next = next.Next()
				wanted = append(wanted, next)
			}
			for _, e := range []worldEnd{g.near, g.far} {
				senders.Go(func() { sendTo(e.place, wanted, &end) })
			}
			add := func(i int, namespace string, senders *sync.WaitGroup, end *atomic.Bool) *listener {
				pod := g.newPod(g.here, fmt.Sprintf("%s-%d", namespace, i))
				place := g.lab.Place(pod)
				heard, err := datagrams(place, netip.IPv4Unspecified())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { heard.socket.Close() })
				senders.Go(func() { sendTo(place, g.near.addresses[:1], end) })
				if _, err := g.standard(g.here).add(t.Context(), pod, confIn(namespace, pod)); err != nil {
					t.Fatal(err)
				}
				if at := pod.Addresses[0]; at != wanted[i] {
					t.Errorf("%s has %s, and what is sent goes to %s", pod.Name, at, wanted[i])
				}
				return heard
			}
			for i := range pods {
				heard := add(i, "denied", &denied, &endDenied)
				time.Sleep(50 * time.Millisecond)
				if n := heard.count.Load(); n > 0 {
					t.Errorf("denied-%d has heard %d datagrams", i, n)
				}
			}
			endDenied.Store(true)
			denied.Wait()
			if n := echo.count.Load(); n > 0 {
				t.Errorf("pods that may not send have sent %d datagrams", n)
			}
			heard := add(pods, "free", &senders, &end)
			eventually(t, func() error {
				if in, out := heard.count.Load(), echo.count.Load(); in == 0 || out == 0 {
					return fmt.Errorf("a pod that may do all of it has heard %d datagrams, and was heard %d times", in, out)
				}
				return nil
			})
		})
	}
}

// confIn is what a runtime says of a pod in a namespace.
func confIn(namespace string, pod *topology.Pod) *libcni.RuntimeConf {
	conf := runtimeConf(pod)
	for i := range conf.Args {
		if conf.Args[i][0] == "K8S_POD_NAMESPACE" {
			conf.Args[i][1] = namespace
		}
	}
	return conf
}

// While an agent does not know all policies, pods that are added are closed to all but their node.
func TestPodsAddedBeforePoliciesAreKnown(t *testing.T) {
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			programs := current(t)
			c := newCluster(t, topology.Options{IPv6: true})
			c.writeManifest("policies.yaml", []byte("kind: NetworkPolicy\nspec: ["))
			for _, n := range c.nodes {
				c.start(n, programs, flags...)
			}
			for _, n := range c.nodes {
				c.waitProblem(n, "NetworkPolicies", "not understood")
			}
			var pods []worldEnd
			for i, n := range []*node{c.nodes[0], c.nodes[0], c.nodes[1]} {
				p := c.addPod(n, fmt.Sprintf("p%d", i))
				pods = append(pods, worldEnd{p.Name, c.lab.Place(p), p.Addresses})
			}
			answer(t, pods[0], backendPort)
			reach := func(from worldEnd, want bool) {
				t.Helper()
				for _, a := range pods[0].addresses {
					eventually(t, func() error {
						err := dials(from.place, netip.AddrPortFrom(a, backendPort))
						if err == nil && !want {
							return fmt.Errorf("%s reaches %s", from.name, a)
						} else if want {
							return err
						}
						return nil
					})
				}
			}
			reach(worldEnd{name: "node", place: c.nodes[0].Place()}, true)
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

// listener counts what it hears.
type listener struct {
	socket   *net.UDPConn
	count    atomic.Int64
	bySender sync.Map // of netip.Addr to *atomic.Int64
}

// from is how much it has heard from an address.
func (l *listener) from(a netip.Addr) *atomic.Int64 {
	count, _ := l.bySender.LoadOrStore(a, &atomic.Int64{})
	return count.(*atomic.Int64)
}

func datagrams(at topology.Place, address netip.Addr) (l *listener, err error) {
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
			l.count.Add(1)
			l.from(sender.Addr().Unmap()).Add(1)
		}
	}()
	return l, nil
}

// sendTo sends to all of these addresses each millisecond, whether they can be reached or not.
func sendTo(from topology.Place, to []netip.Addr, end *atomic.Bool) {
	_ = from.Do(func() error {
		socket, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer socket.Close()
		for !end.Load() {
			for _, a := range to {
				_, _ = socket.WriteToUDPAddrPort([]byte("anybody there?"), netip.AddrPortFrom(a, backendPort))
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	})
}
