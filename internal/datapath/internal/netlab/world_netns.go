package netlab

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// WorldOnSwitch is the world's address on the nodes' link, from which it opens connections.
func (n *Network) WorldOnSwitch(family int) netip.Addr {
	if family == 4 {
		return fixtures.Addr("172.30.0.9")
	}
	return fixtures.Addr("fd00:172:30::9")
}
