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

// Of a sample of connections some are told of from first to last and the others not at all, and all come about.
func TestFlowsSample(t *testing.T) {
	const connections = 60
	g := newPolicyLab(t, "--flows-sample=3")
	g.policy("web", webForClients)
	g.expectPorts(g.outside, g.pod)
	to := netip.AddrPortFrom(g.pod.addresses[0], backendPort)
	for range connections {
		if err := dialsWithin(g.near.place, to, patience); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		told := map[uint16]struct {
			first  int
			closed bool
		}{}
		for _, f := range g.flows("--from", "default/near", "--to", to.Addr().String(), "--verdict", "allowed", "--last", "0").Flows {
			of := told[f.Source.Port]
			if f.First {
				of.first++
			}
			of.closed = of.closed || f.Event == agentapi.FlowEventClosed
			told[f.Source.Port] = of
		}
		if len(told) == 0 || len(told) >= connections {
			return fmt.Errorf("%d of %d connections are told of", len(told), connections)
		}
		for port, of := range told {
			if of.first != 1 || !of.closed {
				return fmt.Errorf("of the connection from port %d there are %d first events, and it is closed: %t", port, of.first, of.closed)
			}
		}
		return nil
	})
	if list := g.flows("--last", "1"); len(list.Losses) > 0 {
		t.Errorf("what nobody has asked for is counted as lost: %+v", list.Losses)
	}
}

// More drops a second than are to be told of are counted, and the command and the metrics say how many there were; nothing of them passes,
// and what is allowed does.
func TestFlowsRate(t *testing.T) {
	const kinds = 200
	g := newPolicyLab(t, "--flows-rate=1")
	g.policy("web", webForClients)
	g.expectPorts(g.far, g.pod, backendPort)
	heard, err := datagrams(g.pod.place, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer heard.socket.Close()
	to := netip.AddrPortFrom(g.pod.addresses[0], backendPort)
	limited := func() (events uint64) {
		for _, l := range g.flows("--last", "1").Losses {
			if l.Event == agentapi.FlowEventDropped && l.Why == "limited" {
				events += l.Events
			}
		}
		return events
	}
	told := func() (packets uint64) {
		for _, f := range g.flows("--from", "default/far", "--to", "default/pod", "--protocol", "udp", "--reason", "ingress_policy", "--last", "0").Flows {
			packets += f.Packets
		}
		return packets
	}
	limitedBefore, droppedBefore := limited(), g.dropped("ingress_policy")
	if err := datagramsFromPorts(g.far.place, to, kinds); err != nil {
		t.Fatal(err)
	}
	if err := dialsWithin(g.far.place, to, patience); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
	eventually(t, func() error {
		if told, lost := told(), limited()-limitedBefore; told >= kinds || told+lost < kinds {
			return fmt.Errorf("of %d drops %d are told of and %d counted", kinds, told, lost)
		}
		return nil
	})
	if dropped := g.dropped("ingress_policy") - droppedBefore; dropped < kinds {
		t.Errorf("%d packets are dropped, want at least %d", dropped, kinds)
	}
	eventually(t, func() error { // when there are no more than that
		if err := datagramsFromPorts(g.far.place, to, 1); err != nil {
			t.Fatal(err)
		}
		if told() == 0 {
			return errors.New("no drop is told of")
		}
		return nil
	})
	if n := heard.count.Load(); n > 0 {
		t.Errorf("%d datagrams are heard that no policy allows", n)
	}
	text := g.command(g.nodes[0], "flows", "--last", "1")
	if !strings.Contains(text, "Not told: ") || !strings.Contains(text, "events (dropped) because more drops a second than --flows-rate") {
		t.Errorf("the command does not say what is lost:\n%s", text)
	}
	const metric = `beeline_flow_lost_total{event="dropped",reason="limited"} `
	if _, value, found := strings.Cut(g.scrape(g.nodes[0], "/metrics", 200), metric); !found || strings.HasPrefix(value, "0\n") {
		t.Errorf("metric %s is %.10q", metric, value)
	}
}

// dropped is how many packets the first node has dropped for a reason.
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

// datagramsFromPorts sends one from each of so many ports.
func datagramsFromPorts(from testbed.Place, to netip.AddrPort, ports int) error {
	return from.Do(func() error {
		for range ports {
			socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			defer socket.Close() // when all are open: no port comes twice
			if _, err := socket.Write([]byte("anybody there?")); err != nil {
				return err
			}
		}
		return nil
	})
}
