package adversary

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// translate has rules of each node's stack translate Services, as kube-proxy does those with externalTrafficPolicy Local: backends of the node see the
// client's address, a pod that reaches itself and the backends of others see the node's. It gives what removes the rules.
func (l *lab) translate() (undo func()) {
	l.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		testenv.Missing(l.t, "no nft to translate Services with")
	}
	for _, n := range l.nodes {
		if said, err := n.Place().Output(l.t.Context(), "nft", l.rules(n)); err != nil {
			l.t.Fatalf("%v\n%s", err, said)
		}
	}
	return func() {
		for _, n := range l.nodes {
			if _, err := n.Place().Output(l.t.Context(), "nft", "delete table inet services"); err != nil {
				l.t.Error(err)
			}
		}
	}
}

// rules are those of one node, for nft.
func (l *lab) rules(n *node) string {
	var before, behind strings.Builder
	for name, service := range services {
		victim := l.pods[name]
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

// protocolFamilies are the families as nft names them, IPv4 first.
var protocolFamilies = []string{"ipv4", "ipv6"}
