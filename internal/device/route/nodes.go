package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// NodesTable is the routing table for packets of the node itself to nodes that encrypt these, too: the first after that of SyncThrough.
const NodesTable = throughTable + 1

// OuterMark is the firewall mark of what the device that encrypts sends: it must not enter the tunnel again.
const OuterMark = 0x103e

// Plaintext is what skips NodesTable: an IP protocol, and a port at either end, or 0.
type Plaintext struct {
	Protocol uint8
	Port     uint16
}

// Nodes are the rules for NodesTable.
type Nodes struct {
	// Plaintext skips the table, and so do packets from Outside: addresses of this node by which other nodes do not know it.
	Plaintext []Plaintext
	Outside   []netip.Addr
}

// SyncNodes makes the rules for NodesTable equal to want; nil removes them. It returns how many rules it added or deleted. Until all exist, packets
// take their usual routes.
func SyncNodes(want *Nodes) (changed int, err error) {
	all := map[rule]bool{}
	if want != nil {
		all = want.rules()
	}
	return syncRules(all, isOfNodes, false)
}

func (n *Nodes) rules() map[rule]bool {
	all := map[rule]bool{}
	families := []int{unix.AF_INET}
	if sysctl.HasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	for _, family := range families {
		skip := func(r rule) {
			r.family, r.priority, r.skipTo = family, nodesSkipPriority, nodesEndPriority
			all[r] = true
		}
		skip(rule{mark: OuterMark})
		for _, p := range n.Plaintext {
			if p.Port == 0 {
				skip(rule{protocol: int(p.Protocol)})
				continue
			}
			skip(rule{protocol: int(p.Protocol), sourcePort: p.Port})
			skip(rule{protocol: int(p.Protocol), port: p.Port})
		}
		for _, a := range n.Outside {
			if a = a.Unmap(); rtnl.Family(a) == family {
				skip(rule{from: netip.PrefixFrom(a, a.BitLen())})
			}
		}
		all[rule{family: family, priority: nodesPriority, table: NodesTable}] = true
		all[rule{family: family, priority: nodesEndPriority}] = true
	}
	return all
}

func isOfNodes(r rule) bool { return r.priority >= nodesSkipPriority && r.priority <= nodesEndPriority }

// forgetIPv6Routes has sockets look up their routes to IPv6 addresses again, by a rule that is added and deleted. A socket otherwise keeps
// the route that it has when one appears in another table, and its acknowledgments stay plaintext, which is dropped. Linux does so by itself
// for IPv4; that a rule does it for IPv6 is in Linux 6.9 and in stable kernels since March 2024.
func forgetIPv6Routes() error {
	k := rule{family: unix.AF_INET6, priority: nodesEndPriority, to: netip.PrefixFrom(netip.IPv6Unspecified(), 128)}.kernel()
	if err := netlink.RuleAdd(k); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add rule %s: %w", k, err)
	}
	if err := netlink.RuleDel(k); err != nil {
		return fmt.Errorf("delete rule %s: %w", k, err)
	}
	return nil
}
