package service

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// show writes ports as cases do, a line for each entry:
//
//	PORT KIND ADDRESS:NUMBER/PROTOCOL | backends inside | backends outside | whatever else there is
//
// where a side without backends says what becomes of connections.
func show(ports []Port) string {
	var b strings.Builder
	for _, p := range ports {
		for _, e := range p.Entries {
			name := p.Name.Port
			if name == "" {
				name = "-"
			}
			fmt.Fprintf(&b, "%s %s %s/%s | %s | %s", name, e.Kind, netip.AddrPortFrom(e.Frontend.Address, e.Frontend.Port), e.Frontend.Protocol,
				showSide(e.Internal), showSide(e.External))
			if e.Affinity != 0 {
				fmt.Fprintf(&b, " | affinity %s", e.Affinity.Round(time.Second))
			}
			for i, block := range e.Sources {
				if i == 0 {
					b.WriteString(" | only")
				}
				fmt.Fprintf(&b, " %s", block)
			}
			if e.DSR {
				b.WriteString(" | DSR")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func showSide(b Backends) string {
	if len(b.Addresses) == 0 {
		text := [...]string{Reject: "refuse", Drop: "drop", Pass: "pass"}[b.Without]
		if b.Maglev {
			text += ", maglev of nothing"
		}
		return text
	}
	var all []string
	if b.Maglev {
		all = append(all, "maglev")
	}
	for _, addr := range b.Addresses {
		all = append(all, addr.String())
	}
	if b.Without != Reject {
		all = append(all, "and a reason to have none")
	}
	return strings.Join(all, " ")
}

// lines trims the indentation of a case.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// reduce reads an object as from an API server or a manifest.
func reduce[Full, Reduced any](t testing.TB, text string, full *Full) *Reduced {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), full); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	reduced, err := cluster.Reduce(full)
	if err != nil {
		t.Fatal(err)
	}
	if reduced == nil {
		return nil
	}
	return reduced.(*Reduced)
}

// theService reads a Service called shop/web; the text begins with its spec.
func theService(t testing.TB, text string) *cluster.Service {
	return reduce[corev1.Service, cluster.Service](t, "metadata: {namespace: shop, name: web}\n"+text, &corev1.Service{})
}

// theSlices reads EndpointSlices of shop/web, which "---" separates.
func theSlices(t testing.TB, text string) (all []*cluster.EndpointSlice) {
	for i, part := range strings.Split(text, "\n---\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		meta := fmt.Sprintf("metadata: {namespace: shop, name: web-%d, labels: {kubernetes.io/service-name: web}}\n", i)
		all = append(all, reduce[discoveryv1.EndpointSlice, cluster.EndpointSlice](t, meta+part, &discoveryv1.EndpointSlice{}))
	}
	return all
}

// n1 is the node of all cases.
func n1() NodeConfig {
	addrs := []netip.Addr{netip.MustParseAddr("192.168.60.11"), netip.MustParseAddr("fd00:60::11"), netip.MustParseAddr("127.0.0.1")}
	return NodeConfig{Name: "n1", Zone: "z1", NodePortAddresses: addrs[:2], HostPortAddresses: addrs,
		ExternalIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
}

// A case is a Service, its endpoints, and their translation on node n1.
type testCase struct {
	name    string
	node    func(*NodeConfig)
	service string // a Service without its metadata
	slices  string // EndpointSlices without their metadata; empty: threePods
	want    string // see show
	health  string
	// problems are one line each.
	problems string
}

// threePods are a pod on this node and two on n2, of both families.
const threePods = `
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}, {name: '', port: 9}]
endpoints:
- {addresses: [10.1.1.2], nodeName: n1}
- {addresses: [10.1.2.2], nodeName: n2}
- {addresses: [10.1.2.3], nodeName: n2}
---
addressType: IPv6
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}, {name: '', port: 9}]
endpoints:
- {addresses: ['fd00:1::2'], nodeName: n1}
- {addresses: ['fd00:2::2'], nodeName: n2}
- {addresses: ['fd00:2::3'], nodeName: n2}
`

func runCases(t *testing.T, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			node := n1()
			if c.node != nil {
				c.node(&node)
			}
			endpoints := c.slices
			if endpoints == "" {
				endpoints = threePods
			}
			var got Translation
			if s := theService(t, c.service); s != nil {
				got = Translate(s, theSlices(t, endpoints), &node)
			}
			health := ""
			if got.Health != nil {
				health = fmt.Sprintf("%s :%d %d", got.Health.Service, got.Health.Port, got.Health.Endpoints)
			}
			for _, part := range []struct{ what, want, got string }{
				{"entries", lines(c.want), show(got.Ports)},
				{"health", c.health, health},
				{"problems", lines(c.problems), lines(strings.Join(got.Problems, "\n"))},
			} {
				if part.want != part.got {
					t.Errorf("%s are\n%s\nwant\n%s", part.what, part.got, part.want)
				}
			}
		})
	}
}
