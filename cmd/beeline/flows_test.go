package main

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
)

func flowPod(namespace, name, address string, port uint16, services ...string) agentapi.FlowEnd {
	return agentapi.FlowEnd{
		Address: netip.MustParseAddr(address), Port: port, Kind: agentapi.FlowEndPod, Namespace: namespace, Name: name, Node: "a", Services: services,
	}
}

var flowNoon = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

// someFlows has one of each kind of line.
func someFlows() []agentapi.Flow {
	cart, db := flowPod("shop", "cart", "10.1.1.2", 40000), flowPod("shop", "db-0", "10.1.2.2", 5432, "shop/db")
	started := agentapi.Flow{
		Time: flowNoon, Event: agentapi.FlowEventNew, Verdict: agentapi.FlowAllowed, Protocol: "TCP", Source: cart, Destination: db,
		EgressPolicy: "shop/from-cart", IngressPolicy: "shop/to-db", Program: "from_pod", Packets: 1, Bytes: 74,
	}
	closed := started
	closed.Time, closed.Event, closed.Packets, closed.ReplyPackets = flowNoon.Add(time.Second), agentapi.FlowEventClosed, 6, 5
	evicted := closed
	evicted.Evicted = true
	revoked := started
	revoked.Event, revoked.EgressPolicy, revoked.IngressPolicy = agentapi.FlowEventRevoked, "", ""
	probe := started
	probe.EgressPolicy, probe.IngressPolicy = "", ""
	probe.Source = agentapi.FlowEnd{Address: netip.MustParseAddr("172.30.0.1"), Port: 40000, Kind: agentapi.FlowEndNode, Name: "a", Node: "a"}
	stranger := probe
	stranger.Source.Name, stranger.Source.Node = "b", "b"
	return []agentapi.Flow{
		started, closed, revoked, evicted, probe, stranger,
		{
			Time: flowNoon, Event: agentapi.FlowEventDropped, Verdict: agentapi.FlowDropped, Protocol: "UDP",
			Source: agentapi.FlowEnd{Address: netip.MustParseAddr("2001:db8::7"), Port: 53}, Destination: flowPod("shop", "cart", "fd00::2", 9),
			Reason: "ingress_policy", Meaning: "no rule allows it", Program: "to_pod", Packets: 12,
		},
		{
			Time: flowNoon, Event: agentapi.FlowEventDropped, Verdict: agentapi.FlowDropped, Protocol: "ICMP",
			Source: agentapi.FlowEnd{Address: netip.MustParseAddr("198.51.100.7"), Port: 7}, DevicePod: "shop/cart",
			Destination: agentapi.FlowEnd{Address: netip.MustParseAddr("172.30.0.1"), Kind: agentapi.FlowEndNode, Name: "a", Node: "a"},
			Reason:      "spoofed_source", Meaning: "the source is another's", Program: "from_pod", Packets: 1,
		},
		{
			Time: flowNoon, Event: agentapi.FlowEventDropped, Verdict: agentapi.FlowDropped, DevicePod: "shop/cart",
			Reason: "not_ip", Meaning: "the frame is not IP", Program: "from_pod", Packets: 1,
		},
		{
			Time: flowNoon, Event: agentapi.FlowEventNew, Verdict: agentapi.FlowAllowed, Protocol: "TCP", Source: cart, Packets: 1,
			Destination: agentapi.FlowEnd{Address: netip.MustParseAddr("10.96.0.5"), Port: 80, Kind: agentapi.FlowEndService, Namespace: "shop", Name: "web"},
		},
	}
}

func TestPrintFlows(t *testing.T) {
	var out strings.Builder
	list := &agentapi.FlowList{
		Flows: someFlows(), Buffered: 7, Mode: "policy",
		Losses: []agentapi.FlowLoss{{Event: "dropped", Reason: "limited", Meaning: "there were too many", Events: 3}},
	}
	if err := printFlows(&out, list); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"TIME          SOURCE                        DESTINATION                       PROTOCOL  EVENT    PACKETS  REASON",
		"12:00:00.123  shop/cart:40000            →  shop/db-0:5432 (Service shop/db)  TCP       new      1        allowed by shop/from-cart (egress) and shop/to-db (ingress)",
		"12:00:01.123  shop/cart:40000            →  shop/db-0:5432 (Service shop/db)  TCP       closed   6/5      allowed by shop/from-cart (egress) and shop/to-db (ingress)",
		"12:00:00.123  shop/cart:40000            →  shop/db-0:5432 (Service shop/db)  TCP       revoked  1/0      no NetworkPolicy allows it any more: see `beeline policy explain`",
		"12:00:01.123  shop/cart:40000            →  shop/db-0:5432 (Service shop/db)  TCP       closed   ≥6/5     allowed by shop/from-cart (egress) and shop/to-db (ingress); evicted from the full conntrack table, so its end is unknown",
		"12:00:00.123  node a:40000               →  shop/db-0:5432 (Service shop/db)  TCP       new      1        the pod's own node",
		"12:00:00.123  node b:40000               →  shop/db-0:5432 (Service shop/db)  TCP       new      1        -",
		"12:00:00.123  [2001:db8::7]:53           →  shop/cart:9                       UDP       dropped  12       ingress_policy in to_pod: no rule allows it",
		"12:00:00.123  shop/cart as 198.51.100.7  →  node a                            ICMP      dropped  1        spoofed_source in from_pod: the source is another's",
		"12:00:00.123  shop/cart                  →  ?                                 -         dropped  1        not_ip in from_pod: the frame is not IP",
		"12:00:00.123  shop/cart:40000            →  Service shop/web:80               TCP       new      1        -",
		"Lost: 3 dropped events: there were too many.",
		"",
	}, "\n")
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s\n%s", diff, &out)
	}
}

// An empty list is explained.
func TestPrintNoFlows(t *testing.T) {
	for want, list := range map[string]agentapi.FlowList{
		"Flows are off on this node (--flows=off).\n":                                                                     {Mode: "off"},
		"No drops since the agent started; connections are not reported on this node (--flows=drops).\n":                  {Mode: "drops"},
		"No flows yet: only drops, and connections of pods that NetworkPolicies select, are reported (--flows=policy).\n": {Mode: "policy"},
		"No flows yet.\n": {Mode: "all"},
		"None of the 7 flows in the buffer, since 2026-05-01T12:00:00Z, matches.\n": {Mode: "all", Buffered: 7, Oldest: flowNoon},
		"No flows yet.\nLost: 9 new events: the reader was too slow.\n": {
			Mode: "all", Losses: []agentapi.FlowLoss{{Event: "new", Meaning: "the reader was too slow", Events: 9}},
		},
	} {
		var out strings.Builder
		if err := printFlows(&out, &list); err != nil || out.String() != want {
			t.Errorf("got %q (%v), want %q", &out, err, want)
		}
	}
}

// flowService is an agent with flows that records requests.
type flowService struct {
	agentapi.Service
	requested []agentapi.FlowFilter
	err       error
}

func (s *flowService) Flows(_ context.Context, which agentapi.FlowFilter) (*agentapi.FlowList, error) {
	s.requested = append(s.requested, which)
	return &agentapi.FlowList{Mode: "policy", Flows: someFlows()[:1], Buffered: 1}, s.err
}

func (s *flowService) FollowFlows(ctx context.Context, which agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	s.requested = append(s.requested, which)
	if s.err != nil {
		return s.err
	}
	for _, f := range someFlows()[:2] {
		if err := each(agentapi.FlowLine{Flow: &f}); err != nil {
			return err
		}
	}
	lost := agentapi.FlowLoss{Event: "dropped", Reason: "limited", Meaning: "there were too many", Events: 3}
	for _, line := range []agentapi.FlowLine{{}, {Missed: 5}, {Lost: &lost}} {
		if err := each(line); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// serveFlows serves such an agent and returns its socket.
func serveFlows(t *testing.T, s *flowService) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	httpServer := &http.Server{Handler: server.Handler(s)}
	go func() { _ = httpServer.Serve(l) }() // until it is closed
	t.Cleanup(func() { httpServer.Close() })
	return socket
}

func TestFlowsCommandRequests(t *testing.T) {
	s := &flowService{}
	socket := serveFlows(t, s)
	for _, c := range []struct {
		args []string
		want agentapi.FlowFilter
	}{
		{nil, agentapi.FlowFilter{Last: flowsLast}},
		{[]string{"--last", "0"}, agentapi.FlowFilter{}},
		{
			[]string{"--pod", "a/b", "--from", "c", "--to", "10.0.0.0/8", "--verdict", "dropped", "--protocol", "tcp", "--port", "80", "--reason", "not_ip", "-o", "json"},
			agentapi.FlowFilter{Pod: "a/b", From: "c", To: "10.0.0.0/8", Verdict: "dropped", Protocol: "tcp", Port: 80, Reason: "not_ip", Last: flowsLast},
		},
	} {
		s.requested = nil
		var out, errOut strings.Builder
		if code := cli.Run(t.Context(), cli.Env{Stdout: &out, Stderr: &errOut}, newRootCommand, append([]string{"flows", "--socket", socket}, c.args...)); code != 0 {
			t.Errorf("%v: code %d: %s", c.args, code, &errOut)
		}
		if diff := cmp.Diff([]agentapi.FlowFilter{c.want}, s.requested); diff != "" {
			t.Errorf("%v requests (-want +got):\n%s", c.args, diff)
		}
		if !strings.Contains(out.String(), "db-0") {
			t.Errorf("%v prints %q", c.args, &out)
		}
	}
	s.requested = nil
	begin := time.Now()
	if code := cli.Run(t.Context(), cli.Env{Stdout: &strings.Builder{}, Stderr: &strings.Builder{}}, newRootCommand, []string{"flows", "--socket", socket, "--since", "5m"}); code != 0 {
		t.Errorf("code %d", code)
	}
	if since := s.requested[0].Since; since.Before(begin.Add(-5*time.Minute-time.Second)) || since.After(time.Now().Add(-5*time.Minute)) {
		t.Errorf("--since 5m requests flows since %v, at %v", since, begin)
	}
	if s.requested[0].Last != 0 {
		t.Errorf("--since requests the last %d, want all since then", s.requested[0].Last)
	}
	s.err = agentapi.Errorf(agentapi.CodeInvalid, agentapi.InFlowFilter+`verdict "no" is none of two`)
	var errOut strings.Builder
	if code := cli.Run(t.Context(), cli.Env{Stdout: &strings.Builder{}, Stderr: &errOut}, newRootCommand, []string{"flows", "--socket", socket}); code != 1 || errOut.String() != "beeline: --verdict \"no\" is none of two\n" {
		t.Errorf("code %d: %s", code, &errOut)
	}
	errOut.Reset()
	if code := cli.Run(t.Context(), cli.Env{Stdout: &strings.Builder{}, Stderr: &errOut}, newRootCommand, []string{"flows", "--socket", socket, "--since", "-5m"}); code != 1 || errOut.String() != "beeline: --since: -5m0s is in the future\n" {
		t.Errorf("code %d: %s", code, &errOut)
	}
}

// interrupting is an output that interrupts the command after a number of lines.
type interrupting struct {
	strings.Builder
	lines     int
	interrupt context.CancelFunc
}

func (i *interrupting) Write(p []byte) (int, error) {
	n, err := i.Builder.Write(p)
	if strings.Count(i.String(), "\n") >= i.lines {
		i.interrupt()
	}
	return n, err
}

func TestFlowsCommandFollows(t *testing.T) {
	s := &flowService{}
	socket := serveFlows(t, s)
	follow := func(lines int, args ...string) (code int, out, errOut string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stdout, stderr := &interrupting{lines: lines, interrupt: cancel}, &strings.Builder{}
		code = cli.Run(ctx, cli.Env{Stdout: stdout, Stderr: stderr}, newRootCommand, append([]string{"flows", "--socket", socket, "--follow"}, args...))
		return code, stdout.String(), stderr.String()
	}
	code, out, errOut := follow(4)
	want := "12:00:00.123  shop/cart:40000                  → shop/db-0:5432 (Service shop/db)  TCP     new           1  allowed by shop/from-cart (egress) and shop/to-db (ingress)\n" +
		"12:00:01.123  shop/cart:40000                  → shop/db-0:5432 (Service shop/db)  TCP     closed      6/5  allowed by shop/from-cart (egress) and shop/to-db (ingress)\n" +
		"Missed 5 events: this command was too slow.\n" +
		"Lost: 3 dropped events: there were too many.\n"
	if code != 0 || errOut != "Watching; end with Ctrl-C.\n" {
		t.Errorf("code %d: %s", code, errOut)
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	code, out, errOut = follow(5, "-o", "json", "--last", "5")
	if lines := strings.Split(out, "\n"); code != 0 || errOut != "" || len(lines) != 6 || lines[3] != `{"missed":5}` || !strings.HasPrefix(lines[4], `{"lost":{"event":"dropped"`) || !strings.HasPrefix(lines[0], `{"flow":{"time":`) {
		t.Errorf("code %d: %s\n%s", code, errOut, out)
	}
	follow(4, "--last", "0")
	if diff := cmp.Diff([]agentapi.FlowFilter{{New: true}, {Last: 5}, {}}, s.requested); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	s.err = errors.New("disk on fire")
	if code, _, errOut := follow(1); code != 1 || !strings.Contains(errOut, "disk on fire") {
		t.Errorf("code %d: %s", code, errOut)
	}
	if code, _, errOut := follow(1, "-o", "yaml"); code != 1 || !strings.Contains(errOut, "--follow supports the output formats text and json") {
		t.Errorf("code %d: %s", code, errOut)
	}
}
