package masquerade

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
)

// tableName is the table that belongs to Beeline, in family inet. Nobody else's is ever touched.
const tableName = "beeline"

// chainName is not "masquerade", which is a word of nft's own language.
const chainName = "pods_to_world"

// neverMasqueraded are destinations that no router forwards: link-local, multicast, broadcast.
var neverMasqueraded = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// layout is the table as it is wanted: a pure value.
type layout struct {
	sets  []set
	rules []rule
}

// set is one interval set of addresses.
type set struct {
	name   string
	kind   nftables.SetDatatype
	ranges []addressRange
}

// rule is one rule of the chain, with the comment that `nft` shows.
type rule struct {
	comment string
	exprs   []expr.Any
}

// layoutOf says what the table must hold for a configuration.
func layoutOf(config Config) layout {
	exempt := append(append([]netip.Prefix{}, neverMasqueraded...), config.Exempt...)
	return layout{
		sets: []set{
			{"pods4", nftables.TypeIPAddr, rangesOf(config.PodCIDRs, true)},
			{"pods6", nftables.TypeIP6Addr, rangesOf(config.PodCIDRs, false)},
			{"exempt4", nftables.TypeIPAddr, rangesOf(exempt, true)},
			{"exempt6", nftables.TypeIP6Addr, rangesOf(exempt, false)},
		},
		rules: []rule{
			{"stays on this node", leavesThrough([]byte("lo\x00"))},
			{"to a pod of this node", leavesThrough([]byte(device.HostPrefix))},
			{"pods to the world, IPv4", masquerade(unix.NFPROTO_IPV4, 12, 16, 4, "pods4", "exempt4")},
			{"pods to the world, IPv6", masquerade(unix.NFPROTO_IPV6, 8, 24, 16, "pods6", "exempt6")},
		},
	}
}

// leavesThrough ends the chain for packets whose outgoing device has a name that begins with name.
func leavesThrough(name []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Verdict{Kind: expr.VerdictReturn},
	}
}

// masquerade translates packets of one family from a pod to a destination that is not exempt. source and
// destination are the offsets of the addresses in the network header, size their length, all in bytes.
// Ports are chosen fully at random: two processors that translate at the same moment then seldom choose the
// same port, which would cost one of them its packet.
func masquerade(family byte, source, destination, size uint32, pods, exempt string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: pods},
		&expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: exempt, Invert: true},
		&expr.Counter{},
		&expr.Masq{FullyRandom: true},
	}
}

func ourTable() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

func ourChain() *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	return &nftables.Chain{
		Name: chainName, Table: ourTable(), Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource, Policy: &policy,
	}
}

func (s set) kernel() *nftables.Set {
	return &nftables.Set{Table: ourTable(), Name: s.name, KeyType: s.kind, Interval: true, KeyByteOrder: binaryutil.BigEndian}
}

func (s set) elements() []nftables.SetElement {
	var elements []nftables.SetElement
	for _, r := range s.ranges {
		elements = append(elements, r.elements()...)
	}
	return elements
}

func (r rule) kernel(chain *nftables.Chain) *nftables.Rule {
	return &nftables.Rule{
		Table: chain.Table, Chain: chain, Exprs: r.exprs,
		UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment),
	}
}
