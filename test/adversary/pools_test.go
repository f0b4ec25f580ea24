package adversary

import (
	"fmt"
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
	devices := map[podKind]string{onLink: "device: macvlan, "}
	first := 150 // above the nodes' second addresses
	var text strings.Builder
	for _, kind := range l.kinds {
		if kind == ofRange {
			continue
		}
		for _, n := range l.nodes {
			fmt.Fprintf(&text, "---\napiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s}\n"+
				"spec: {%sprobe: false, nodeSelector: {matchLabels: {kubernetes.io/hostname: %s}}, "+
				"subnets: ['%s', '%s'], ranges: ['192.168.77.%[6]d-192.168.77.%[7]d', 'fd77::%[6]d-fd77::%[7]d']}\n",
				kind.pool(n), devices[kind], n.Name, n.Addresses[0].Masked(), n.Addresses[1].Masked(), first, first+addressesPerNode-1)
			first += addressesPerNode + 1
		}
	}
	if text.Len() > 0 {
		l.write("ippools.yaml", []byte(text.String()))
	}
}
