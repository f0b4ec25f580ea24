package flow

import (
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

func TestFilter(t *testing.T) {
	n := NewNames("a")
	n.Deliver(someObjects())
	n.SetLocals([]Local{{Pod: cart.Key(), Addresses: cart.Addresses, Device: 3}})
	records := map[string]Record{
		"allowed": n.Record(Event{Time: noon, Kind: KindNew, Protocol: 6, Source: end("10.1.1.2:40000"), Destination: end("10.1.2.2:15432"), Device: 3, Program: fromPod}),
		"dropped": n.Record(Event{Time: noon.Add(time.Minute), Kind: KindDropped, Protocol: 17, Source: end("203.0.113.7:53"), Destination: end("10.1.1.2:9"), Reason: "ingress_policy"}),
		"lied":    n.Record(Event{Time: noon, Kind: KindDropped, Protocol: 6, Source: end("198.51.100.7:1"), Destination: end("10.96.0.5:5432"), Reason: "spoofed_source", Device: 3, Program: fromPod}),
	}
	for _, c := range []struct {
		filter agentapi.FlowFilter
		want   string
	}{
		{agentapi.FlowFilter{}, "allowed dropped lied"},
		{agentapi.FlowFilter{Pod: "shop/cart"}, "allowed dropped lied"},
		{agentapi.FlowFilter{Pod: "shop/db-0"}, "allowed"},
		{agentapi.FlowFilter{Pod: "shop/db"}, "allowed lied"},
		{agentapi.FlowFilter{From: "shop/cart"}, "allowed lied"},
		{agentapi.FlowFilter{From: "shop/"}, "allowed lied"},
		{agentapi.FlowFilter{From: "other/"}, ""},
		{agentapi.FlowFilter{From: "203.0.113.0/24"}, "dropped"},
		{agentapi.FlowFilter{From: "203.0.113.7"}, "dropped"},
		{agentapi.FlowFilter{From: "::ffff:203.0.113.7"}, "dropped"},
		{agentapi.FlowFilter{To: "shop/cart"}, "dropped"},
		{agentapi.FlowFilter{To: "cart"}, "dropped"},
		{agentapi.FlowFilter{To: "shop/db"}, "allowed lied"}, // by its endpoint, and by its own address
		{agentapi.FlowFilter{To: "db"}, "allowed lied"},
		{agentapi.FlowFilter{To: "10.0.0.0/8"}, "allowed dropped lied"},
		{agentapi.FlowFilter{Verdict: "allowed"}, "allowed"},
		{agentapi.FlowFilter{Verdict: "dropped"}, "dropped lied"},
		{agentapi.FlowFilter{Protocol: "udp"}, "dropped"},
		{agentapi.FlowFilter{Protocol: "6"}, "allowed lied"},
		{agentapi.FlowFilter{Port: 9}, "dropped"},
		{agentapi.FlowFilter{Reason: "spoofed_source"}, "lied"},
		{agentapi.FlowFilter{Since: noon.Add(time.Second)}, "dropped"},
		{agentapi.FlowFilter{From: "shop/cart", Verdict: "dropped", Port: 5432}, "lied"},
	} {
		f, err := NewFilter(c.filter, []string{"ingress_policy", "spoofed_source"})
		if err != nil {
			t.Errorf("%+v: %v", c.filter, err)
			continue
		}
		var got []string
		for _, name := range []string{"allowed", "dropped", "lied"} {
			if r := records[name]; f.Chooses(&r) {
				got = append(got, name)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v chooses %q, expected %q", c.filter, s, c.want)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for _, f := range []agentapi.FlowFilter{
		{Verdict: "maybe"}, {Protocol: "tpc"}, {Protocol: "0"}, {Protocol: "256"}, {Reason: "why"}, {Last: -1},
		{Pod: "10.1.2.0/33"}, {From: "fd00::/129"}, {To: "10.1.2.3/"}, {Pod: "/cart"}, {To: "shop/cart/8080"},
	} {
		if _, err := NewFilter(f, []string{"ingress_policy"}); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

// Protocols are parsed by name and by number.
func TestProtocolNumbers(t *testing.T) {
	for text, want := range map[string]cluster.Protocol{"": 0, "tcp": cluster.TCP, "icmpv6": cluster.ICMPv6, "132": cluster.SCTP} {
		if got, err := protocolNumber(text); err != nil || cluster.Protocol(got) != want {
			t.Errorf("%q is %d (%v), expected %d", text, got, err, want)
		}
	}
}
