package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// flows reads the flows of the first node.
func (g *policyLab) flows(args ...string) (list agentapi.FlowList) {
	g.t.Helper()
	g.commandJSON(g.nodes[0], &list, append([]string{"flows"}, args...)...)
	return list
}

// waitFlow waits for a flow event that fits.
func (g *policyLab) waitFlow(event string, fits func(agentapi.Flow) bool, args ...string) (found agentapi.Flow) {
	g.t.Helper()
	eventually(g.t, func() error {
		list := g.flows(args...)
		i := slices.IndexFunc(list.Flows, fits)
		if i < 0 {
			return fmt.Errorf("no flow event of %s: %+v", event, list)
		}
		found = list.Flows[i]
		return nil
	})
	return found
}

// expectLastingFlow opens a connection to the pod, which default/web allows, and expects events while it is open and
// when it ends.
func (g *policyLab) expectLastingFlow(from machine, args ...string) {
	g.t.Helper()
	var conn net.Conn
	if err := from.netns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(g.pod.addresses[0], backendPort).String(), patience)
		return err
	}); err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	its := func(f agentapi.Flow) bool {
		return f.Source.Port == netip.MustParseAddrPort(conn.LocalAddr().String()).Port() && f.IngressPolicy == "default/web" && f.EgressPolicy == "" &&
			f.Destination.Port == backendPort && !f.Created.IsZero() && !f.Created.After(f.Time)
	}
	g.waitFlow("an open connection", func(f agentapi.Flow) bool {
		return its(f) && f.Event == agentapi.FlowEventReplied && f.Packets > 0 && f.ReplyPackets > 0
	}, args...)
	conn.Close()
	g.waitFlow("its end", func(f agentapi.Flow) bool {
		return its(f) && f.Event == agentapi.FlowEventClosed && !f.First && f.Packets > 1 && f.ReplyPackets > 1 && f.Bytes >= 120 && f.ReplyBytes >= 120
	}, args...)
	first := 0
	for _, f := range g.flows(append(args, "--last", "0")...).Flows {
		if its(f) && f.First {
			first++
		}
	}
	if first != 1 {
		g.t.Errorf("%d first events of the connection from %s", first, conn.LocalAddr())
	}
}

func named(e agentapi.FlowEnd) string { return e.Kind + " " + e.Namespace + "/" + e.Name }

// Flow events name pods, and the policies that allow a connection or the drop reason.
func TestFlows(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}")
	g.expectPorts(g.near, g.pod, backendPort)
	g.expectPorts(g.far, g.pod, backendPort)
	g.expectPorts(g.outside, g.pod)

	for _, from := range []machine{g.near, g.far} {
		between := []string{"--from", "default/" + from.name, "--to", "default/pod"}
		drop := g.waitFlow("a drop by policy", func(f agentapi.Flow) bool { return f.Destination.Port == otherPort }, append(between, "--verdict", "dropped")...)
		if drop.Reason != "ingress_policy" || named(drop.Source) != "pod default/"+from.name || named(drop.Destination) != "pod default/pod" ||
			drop.Protocol != "TCP" || !strings.Contains(drop.Meaning, "policy explain") || drop.Packets == 0 {
			t.Errorf("drop %+v", drop)
		}
		g.expectLastingFlow(from, append(between, "--verdict", "allowed", "--protocol", "tcp")...)
	}
	outside := g.waitFlow("a drop of the external machine", func(agentapi.Flow) bool { return true }, "--from", g.outside.addresses[0].String(), "--verdict", "dropped")
	if outside.Source.Kind != "" || outside.Source.Address != g.outside.addresses[0] || outside.Reason != "ingress_policy" {
		t.Errorf("drop %+v", outside)
	}

	// A drop without policies: a spoofed source address. The event names the pod by its device.
	stranger := netip.MustParseAddr("198.51.100.7")
	if err := sendAs(g.near.netns, stranger, netip.AddrPortFrom(g.far.addresses[0], 4242), []byte{1}, 3); err != nil {
		t.Fatal(err)
	}
	spoofed := g.waitFlow("a spoofed source", func(agentapi.Flow) bool { return true }, "--pod", "default/near", "--reason", "spoofed_source")
	if spoofed.DevicePod != "default/near" || spoofed.Source.Address != stranger || named(spoofed.Destination) != "pod default/far" ||
		spoofed.Destination.Port != 4242 || spoofed.Program != "from_pod" {
		t.Errorf("drop %+v", spoofed)
	}

	// The first drop is reported at once, the others a second later without further packets.
	eventually(t, func() error {
		var packets uint64
		for _, f := range g.flows("--pod", "default/near", "--reason", "spoofed_source", "--port", "4242").Flows {
			packets += f.Packets
		}
		if packets != 3 {
			return fmt.Errorf("flow events of %d packets, 3 were sent", packets)
		}
		return nil
	})

	text := g.command(g.nodes[0], "flows", "--pod", "default/near", "--last", "0")
	for _, want := range []string{"default/near", "default/pod:", "allowed by default/web (ingress)", "ingress_policy in ", "default/near as 198.51.100.7:", "→"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
	metrics := g.scrape(g.nodes[0], "/metrics", 200)
	for _, want := range []string{`beeline_flow_events_total{event="dropped",verdict="dropped"} [1-9]`, `beeline_flow_events_total{event="closed",verdict="allowed"} [1-9]`,
		`beeline_flow_connections_total [1-9]`, `beeline_flow_events_total{event="revoked",verdict="dropped"} 0`, `beeline_flow_lost_total{event="dropped",reason="limited"} 0`} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("no metric %s", want)
		}
	}
}

// flows --follow prints new events, and an interrupt ends it without an error.
func TestFlowsFollow(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	g.policy("web", "{podSelector: {matchLabels: {app: web}}}")
	g.expectPorts(g.near, g.pod)
	cmd := exec.CommandContext(t.Context(), current(g.t).Command(), "flows", "--follow", "--to", "default/pod", "--verdict", "dropped", "-o", "json", "--socket", g.nodes[0].socket())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := g.nodes[0].Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	stop := make(chan struct{})
	go func() { // the first packets may come before the command follows
		for {
			select {
			case <-stop:
				return
			default:
				_ = dials(g.far.netns, netip.AddrPortFrom(g.pod.addresses[0], otherPort))
			}
		}
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	close(stop)
	var got agentapi.FlowLine
	if err := errors.Join(err, json.Unmarshal(line, &got)); err != nil || got.Flow == nil {
		t.Fatalf("line %q: %v\n%s", line, err, &errOut)
	}
	if named(got.Flow.Source) != "pod default/far" || got.Flow.Reason != "ingress_policy" {
		t.Errorf("flow %+v", got.Flow)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v\n%s", err, &errOut)
	}
}
