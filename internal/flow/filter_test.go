package flow

import (
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
)

func TestFilter(t *testing.T) {
	n := NewNames("a")
	n.Deliver(world())
	n.SetLocals([]Local{{Pod: cart.Key(), Addresses: cart.Addresses, Device: 3}})
	records := map[string]Record{
		"allowed": n.Record(Event{Time: noon, Kind: Opened, Protocol: 6, Source: end("10.1.1.2:40000"), Destination: end("10.1.2.2:15432"), Device: 3, Program: fromPod}),
		"dropped": n.Record(Event{Time: noon.Add(time.Minute), Kind: Dropped, Protocol: 17, Source: end("203.0.113.7:53"), Destination: end("10.1.1.2:9"), Reason: "ingress_policy"}),
		"lied":    n.Record(Event{Time: noon, Kind: Dropped, Protocol: 6, Source: end("198.51.100.7:1"), Destination: end("10.96.0.5:5432"), Reason: "spoofed_source", Device: 3, Program: fromPod}),
	}
	for _, c := range []struct {
		filter api.FlowFilter
		want   string
	}{
		{api.FlowFilter{}, "allowed dropped lied"},
		{api.FlowFilter{Pod: "shop/cart"}, "allowed dropped lied"},
		{api.FlowFilter{Pod: "shop/db-0"}, "allowed"},
		{api.FlowFilter{Pod: "shop/db"}, "allowed lied"},
		{api.FlowFilter{From: "shop/cart"}, "allowed lied"},
		{api.FlowFilter{From: "shop/"}, "allowed lied"},
		{api.FlowFilter{From: "other/"}, ""},
		{api.FlowFilter{From: "203.0.113.0/24"}, "dropped"},
		{api.FlowFilter{From: "203.0.113.7"}, "dropped"},
		{api.FlowFilter{From: "::ffff:203.0.113.7"}, "dropped"},
		{api.FlowFilter{To: "shop/cart"}, "dropped"},
		{api.FlowFilter{To: "cart"}, "dropped"},
		{api.FlowFilter{To: "shop/db"}, "allowed lied"}, // by its endpoint, and by its own address
		{api.FlowFilter{To: "db"}, "allowed lied"},
		{api.FlowFilter{To: "10.0.0.0/8"}, "allowed dropped lied"},
		{api.FlowFilter{Verdict: "allowed"}, "allowed"},
		{api.FlowFilter{Verdict: "dropped"}, "dropped lied"},
		{api.FlowFilter{Protocol: "udp"}, "dropped"},
		{api.FlowFilter{Protocol: "6"}, "allowed lied"},
		{api.FlowFilter{Port: 9}, "dropped"},
		{api.FlowFilter{Reason: "spoofed_source"}, "lied"},
		{api.FlowFilter{Since: noon.Add(time.Second)}, "dropped"},
		{api.FlowFilter{From: "shop/cart", Verdict: "dropped", Port: 5432}, "lied"},
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
	for _, f := range []api.FlowFilter{
		{Verdict: "maybe"}, {Protocol: "tpc"}, {Protocol: "0"}, {Protocol: "256"}, {Reason: "why"}, {Last: -1},
		{Pod: "10.1.2.0/33"}, {From: "fd00::/129"}, {To: "10.1.2.3/"}, {Pod: "/cart"}, {To: "shop/cart/8080"},
	} {
		if _, err := NewFilter(f, []string{"ingress_policy"}); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

// Kinds of protocols are read as they are written.
func TestProtocolNumbers(t *testing.T) {
	for text, want := range map[string]cluster.Protocol{"": 0, "tcp": cluster.TCP, "icmpv6": cluster.ICMPv6, "132": cluster.SCTP} {
		if got, err := protocolNumber(text); err != nil || cluster.Protocol(got) != want {
			t.Errorf("%q is %d (%v), expected %d", text, got, err, want)
		}
	}
}
