package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// connection is a connection to a NodePort of a node, whose only backend is one pod.
type connection struct {
	from, node, backend machine
	port                uint16
}

// explained checks that a connection succeeds as wanted, and that both agents explain it so.
func (g *policyLab) explained(c connection, family int, want bool) error {
	to := netip.AddrPortFrom(c.node.addresses[family], c.port)
	from := c.from.addresses[family].String()
	if c.from.name == g.near.name {
		from = "default/" + c.from.name
	}
	errs := []error{reaches(c.from, c.backend, to, want)}
	for _, n := range g.nodes[:2] {
		a, err := n.api().ExplainPolicy(g.t.Context(), agentapi.PolicyQuestion{From: from, To: to.Addr().String(), Port: fmt.Sprint(to.Port()), Protocol: "TCP"})
		if err != nil {
			errs = append(errs, err)
		} else if a.Allowed != want || len(a.Paths) == 0 {
			errs = append(errs, fmt.Errorf("%s explains %s to %s: %+v", n.Name, from, to, a))
		}
	}
	return errors.Join(errs...)
}

// policy explain agrees with real connections to NodePorts: of a pod to its own and another node, of the external
// machine, to local and remote backends.
func TestExplainNodePorts(t *testing.T) {
	t.Parallel()
	const all = "near node pod, near node far, near other pod, near other far, external node pod, external node far, external other pod, external other far"
	const toPods = "near node pod, near node far, external node pod, external node far, external other pod, external other far"
	const toOther = "near other far, external node pod, external node far, external other pod, external other far"
	for mode, allowed := range map[string][]string{
		"snat": {all, toPods, toOther + ", near other pod", "near node pod, near node far, near other far, external node pod, external other far", "near other pod, external other pod"},
		// near and pod are on one node, so replies of pod to near go through the other node.
		"dsr": {all, toPods, toOther + ", near other pod", "near node pod, near node far, near other far, external node pod, external node far, external other pod, external other far", "near other pod"},
	} {
		t.Run(mode, func(t *testing.T) { explainNodePorts(t, mode, allowed) })
	}
}

// explainNodePorts tests one mode; allowed lists the successful connections for each policy.
func explainNodePorts(t *testing.T, mode string, allowed []string) {
	g := newPolicyLab(t, "--nodeport-mode="+mode)
	g.labels["far"] = "web"
	g.writePods()
	backends := map[uint16]machine{30080: g.pod, 30081: g.far}
	for port, backend := range backends {
		service := serviceYAML("to-"+backend.name, serviceAddresses(port), "  type: NodePort", backend)
		service = bytes.Replace(service, []byte("protocol: TCP"), fmt.Appendf(nil, "protocol: TCP, nodePort: %d", port), 1)
		g.writeManifest(fmt.Sprintf("service-%d.yaml", port), service)
	}
	block := func(of machine) string {
		var all []string
		for _, a := range of.addresses {
			all = append(all, fmt.Sprintf("{ipBlock: {cidr: '%s'}}", netip.PrefixFrom(a, a.BitLen())))
		}
		return strings.Join(all, ", ")
	}
	const egress = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [%s]}]}"
	const ingress = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [%s]}]}"
	const client = "{podSelector: {matchLabels: {app: client}}}"
	for i, c := range []struct{ name, spec string }{
		{"none", ""},
		{"to pods", fmt.Sprintf(egress, "{podSelector: {}}")},
		{"to the other node", fmt.Sprintf(egress, block(g.peer))},
		{"from clients", fmt.Sprintf(ingress, client+", "+block(g.outside))},
		{"from the other node", fmt.Sprintf(ingress, block(g.peer))},
	} {
		g.noPolicy("one")
		if c.spec != "" {
			g.policy("one", c.spec)
		}
		eventually(t, func() error {
			var checks sync.WaitGroup
			var mu sync.Mutex
			var errs []error
			for _, from := range []machine{g.near, g.outside} {
				for _, node := range []machine{g.node, g.peer} {
					for port, backend := range backends {
						word, _, _ := strings.Cut(node.name, " ")
						want := strings.Contains(allowed[i], from.name+" "+word+" "+backend.name)
						for family := range from.addresses {
							checks.Go(func() {
								err := g.explained(connection{from, node, backend, port}, family, want)
								mu.Lock()
								defer mu.Unlock()
								errs = append(errs, err)
							})
						}
					}
				}
			}
			checks.Wait()
			if err := errors.Join(errs...); err != nil {
				return fmt.Errorf("policy %s: %w", c.name, err)
			}
			return nil
		})
	}
}

// serviceAddresses returns addresses that are unique for a number.
func serviceAddresses(number uint16) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)}), netip.MustParseAddr(fmt.Sprintf("fd96::%x", number))}
}
