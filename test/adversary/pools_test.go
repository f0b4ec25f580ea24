package adversary

import (
	"fmt"
	"strings"
)

// addressesPerNode is how many addresses of the link a node's pods may have: few, so that they are soon reused.
const addressesPerNode = 9

// writePools publishes an IPPool of macvlan devices for each node: without an API server, a node does not know which
// addresses another one has allocated.
func (l *lab) writePools() {
	l.t.Helper()
	var text strings.Builder
	for _, n := range l.nodes {
		first := 100 + 50*n.Index // above the nodes' second addresses
		fmt.Fprintf(&text, "---\napiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: link-%[1]s}\n"+
			"spec: {device: macvlan, default: true, probe: false, nodeSelector: {matchLabels: {kubernetes.io/hostname: %[1]s}}, "+
			"subnets: ['%[2]s', '%[3]s'], ranges: ['192.168.77.%[4]d-192.168.77.%[5]d', 'fd77::%[4]d-fd77::%[5]d']}\n",
			n.Name, n.Addresses[0].Masked(), n.Addresses[1].Masked(), first, first+addressesPerNode-1)
	}
	l.write("ippools.yaml", []byte(text.String()))
}
