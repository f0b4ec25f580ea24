package adversary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// podKind is which addresses and device a pod has: in names, after its app.
type podKind string

const (
	// ofRange: an address of the node's pod range, and the node's kind of device.
	ofRange podKind = ""
	// onLink: an address of the nodes' link, and a macvlan device.
	onLink podKind = "macvlan"
	// routed: an address of the nodes' link, for which the node's uplink answers, and the node's kind of device.
	routed podKind = "routed"
)

var allKinds = []podKind{ofRange, onLink, routed}

func (k podKind) isMacvlan() bool { return strings.HasSuffix(string(k), string(onLink)) }

// victimApps are the pods that are attacked; the others attack or help.
var victimApps = []string{isolated, unselected}

// kindOf is the kind that the configuration chooses for the pods of an app.
func (l *lab) kindOf(app string) podKind {
	if slices.Contains(victimApps, app) {
		return l.configuration.victims
	}
	return l.configuration.attackers
}

// podName is the name of the pods of an app and kind, without the index of their node.
func podName(app string, kind podKind) string {
	if kind == ofRange {
		return app
	}
	return fmt.Sprint(app, "-", kind)
}

// pool is the name of the kind's IPPool on a node.
func (k podKind) pool(n *node) string { return fmt.Sprint(k, "-", n.Name) }

// addressesPerNode is how many addresses of the link a node's pods of one kind may have: few, so that they are soon reused.
const addressesPerNode = 9

// writePools publishes an IPPool of each kind for each node: without an API server, a node does not know which addresses
// another one has allocated.
func (l *lab) writePools() {
	l.t.Helper()
	first := 150 // above the nodes' second addresses
	var text strings.Builder
	for _, kind := range l.kinds {
		if kind == ofRange {
			continue
		}
		for _, n := range l.nodes {
			text.WriteString(poolYAML(kind, n, "", n.Addresses, first))
			first += addressesPerNode + 1
		}
	}
	if text.Len() > 0 {
		l.write("ippools.yaml", []byte(text.String()))
	}
}

// poolYAML is the manifest of a kind's IPPool on a node, in the subnets of these addresses, from the host with this number on; more is of its
// spec.
func poolYAML(kind podKind, n *node, more string, in []netip.Prefix, first int) string {
	var subnets, ranges []string
	for _, p := range in {
		prefix := strings.TrimSuffix(p.Masked().Addr().String(), ".0")
		separator := "."
		if p.Addr().Is6() {
			separator = ""
		}
		subnets = append(subnets, fmt.Sprintf("'%s'", p.Masked()))
		ranges = append(ranges, fmt.Sprintf("'%[1]s%[2]s%[3]d-%[1]s%[2]s%[4]d'", prefix, separator, first, first+addressesPerNode-1))
	}
	if kind.isMacvlan() {
		more += "device: macvlan, "
	}
	return fmt.Sprintf("---\napiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s}\n"+
		"spec: {%sprobe: false, nodeSelector: {matchLabels: {kubernetes.io/hostname: %s}}, subnets: [%s], ranges: [%s]}\n",
		kind.pool(n), more, n.Name, strings.Join(subnets, ", "), strings.Join(ranges, ", "))
}
