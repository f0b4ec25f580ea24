package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// With --flows-sample all events of a sampled connection are reported, and none of others. All connections succeed.
func TestFlowsSample(t *testing.T) {
	const connections = 60
	g := newPolicyLab(t, "--flows-sample=3")
	g.policy("web", webForClients)
	g.expectPorts(g.outside, g.pod)
	to := netip.AddrPortFrom(g.pod.addresses[0], backendPort)
	for range connections {
		if err := dialsWithin(g.near.netns, to, patience); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		reported := map[uint16]struct {
			first  int
			closed bool
		}{}
		for _, f := range g.flows("--from", "default/near", "--to", to.Addr().String(), "--verdict", "allowed", "--last", "0").Flows {
			of := reported[f.Source.Port]
			if f.First {
				of.first++
			}
			of.closed = of.closed || f.Event == agentapi.FlowEventClosed
			reported[f.Source.Port] = of
		}
		if len(reported) == 0 || len(reported) >= connections {
			return fmt.Errorf("%d of %d connections are reported", len(reported), connections)
		}
		for port, of := range reported {
			if of.first != 1 || !of.closed {
				return fmt.Errorf("the connection from port %d has %d first events, closed: %t", port, of.first, of.closed)
			}
		}
		return nil
	})
	for _, l := range g.flows("--last", "1").Losses {
		if l.Event != agentapi.FlowEventDropped { // an agent that comes too late for drops may lose them
			t.Errorf("connections outside the sample count as lost: %+v", l)
		}
	}
}

// Drops beyond --flows-rate are counted, in the command's output and in metrics. None of these packets passes, and
// allowed ones do.
func TestFlowsRate(t *testing.T) {
	const kinds = 200
	g := newPolicyLab(t, "--flows-rate=1")
	g.policy("web", webForClients)
	g.expectPorts(g.far, g.pod, backendPort)
	received, err := datagrams(g.pod.netns, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer received.socket.Close()
	to := netip.AddrPortFrom(g.pod.addresses[0], backendPort)
	limited := func() (events uint64) {
		for _, l := range g.flows("--last", "1").Losses {
			if l.Event == agentapi.FlowEventDropped && l.Reason == "limited" {
				events += l.Events
			}
		}
		return events
	}
	reported := func() (packets uint64) {
		for _, f := range g.flows("--from", "default/far", "--to", "default/pod", "--protocol", "udp", "--reason", "ingress_policy", "--last", "0").Flows {
			packets += f.Packets
		}
		return packets
	}
	limitedBefore, droppedBefore := limited(), g.dropped("ingress_policy")
	if err := datagramsFromPorts(g.far.netns, to, kinds); err != nil {
		t.Fatal(err)
	}
	if err := dialsWithin(g.far.netns, to, patience); err != nil {
		t.Errorf("an allowed connection: %v", err)
	}
	eventually(t, func() error {
		if reported, lost := reported(), limited()-limitedBefore; reported >= kinds || reported+lost < kinds {
			return fmt.Errorf("of %d drops %d are reported and %d counted", kinds, reported, lost)
		}
		return nil
	})
	if dropped := g.dropped("ingress_policy") - droppedBefore; dropped < kinds {
		t.Errorf("%d packets are dropped, want at least %d", dropped, kinds)
	}
	eventually(t, func() error { // at a lower rate
		if err := datagramsFromPorts(g.far.netns, to, 1); err != nil {
			t.Fatal(err)
		}
		if reported() == 0 {
			return errors.New("no drop is reported")
		}
		return nil
	})
	if n := received.count.Load(); n > 0 {
		t.Errorf("%d datagrams arrive that no policy allows", n)
	}
	text := g.command(g.nodes[0], "flows", "--last", "1")
	if !strings.Contains(text, "Lost: ") || !strings.Contains(text, "dropped events: more drops a second than --flows-rate") {
		t.Errorf("the output has no line about lost events:\n%s", text)
	}
	const metric = `beeline_flow_lost_total{event="dropped",reason="limited"} `
	if _, value, found := strings.Cut(g.scrape(g.nodes[0], "/metrics", 200), metric); !found || strings.HasPrefix(value, "0\n") {
		t.Errorf("metric %s is %.10q", metric, value)
	}
}

// dropped counts the packets that the first node dropped for a reason.
func (g *policyLab) dropped(reason string) (packets uint64) {
	g.t.Helper()
	all, err := g.here.api().Drops(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	for _, d := range all {
		if d.Reason == reason {
			packets += d.Packets
		}
	}
	return packets
}

// datagramsFromPorts sends a datagram from each of this many ports.
func datagramsFromPorts(from testbed.Netns, to netip.AddrPort, ports int) error {
	return from.Do(func() error {
		for range ports {
			socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			defer socket.Close() // after the loop, so that no port is used twice
			if _, err := socket.Write([]byte("ping")); err != nil {
				return err
			}
		}
		return nil
	})
}
