package adversary

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// addServiceRules translates Services by nftables on each node, as kube-proxy does with externalTrafficPolicy Local:
// backends on the node see the client's address; a hairpin pod and remote backends see the node's. It returns a
// function that removes the rules.
func (l *lab) addServiceRules() (undo func()) {
	l.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		testenv.Missing(l.t, "nft, to translate Services")
	}
	for _, n := range l.nodes {
		if out, err := n.Output(l.t.Context(), "nft", l.rules(n)); err != nil {
			l.t.Fatalf("%v\n%s", err, out)
		}
	}
	return func() {
		for _, n := range l.nodes {
			if _, err := n.Output(l.t.Context(), "nft", "delete table inet services"); err != nil {
				l.t.Error(err)
			}
		}
	}
}

// rules are the nftables rules of one node.
func (l *lab) rules(n *node) string {
	var before, behind strings.Builder
	for name, service := range services {
		victim := l.pods[name]
		if victim == nil {
			continue // of a kind that the lab does not have
		}
		for i, family := range []string{"ip", "ip6"} {
			backend := victim.Addresses[i]
			for _, protocol := range []string{"tcp", "udp"} {
				to := netip.AddrPortFrom(backend, serverPort)
				for _, at := range []netip.Addr{service.cluster[i], service.balancer[i], service.external[i]} {
					fmt.Fprintf(&before, "%s daddr %s %s dport %d dnat %s to %s\n", family, at, protocol, serverPort, family, to)
				}
				fmt.Fprintf(&before, "meta nfproto %s fib daddr type local %s dport %d dnat %s to %s\n", protocolFamilies[i], protocol, service.nodePort, family, to)
			}
			fmt.Fprintf(&before, "meta nfproto %s fib daddr type local udp dport %d dnat %s to %s\n", protocolFamilies[i], service.markerNodePort, family, netip.AddrPortFrom(backend, markerPort))
			source := fmt.Sprintf("%s saddr %s", family, backend)
			if victim.node != n {
				source = ""
			}
			fmt.Fprintf(&behind, "%s %s daddr %s ct status dnat masquerade\n", source, family, backend)
		}
	}
	return fmt.Sprintf("table inet services {\nchain prerouting { type nat hook prerouting priority -100;\n%s}\nchain postrouting { type nat hook postrouting priority 100;\n%s}\n}\n",
		before.String(), behind.String())
}

// protocolFamilies are the families' names in nftables, IPv4 first.
var protocolFamilies = []string{"ipv4", "ipv6"}
