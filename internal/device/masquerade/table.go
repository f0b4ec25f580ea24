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
const tableName = device.FilterTable

// Names of chains. The first is not "masquerade", which is a word of nft's own language.
const (
	translating = "pods_to_world"
	marking     = "replies_to_world"
)

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
	sets   []set
	chains []chain
}

// set is one interval set of addresses.
type set struct {
	name   string
	kind   nftables.SetDatatype
	ranges []addressRange
}

// chain is one base chain at the hook postrouting, with policy accept.
type chain struct {
	name     string
	kind     nftables.ChainType
	priority nftables.ChainPriority
	rules    []rule
}

// rule is one rule of a chain, with the comment that `nft` shows.
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
		chains: []chain{
			{translating, nftables.ChainTypeNAT, *nftables.ChainPriorityNATSource, []rule{
				{"stays on this node", leavesThrough([]byte("lo\x00"))},
				{"to a pod of this node", leavesThrough([]byte(device.HostPrefix))},
				{"pods to the world, IPv4", masquerade(ipv4)},
				{"pods to the world, IPv6", masquerade(ipv6)},
			}},
			// A filter chain, since those of NAT see only the first packet of a connection; behind srcnat, so
			// that it sees the addresses that leave the node.
			{marking, nftables.ChainTypeFilter, *nftables.ChainPriorityNATSource + 10, []rule{
				{"replies keep the pod's address, IPv4", markReplies(ipv4, config.ReplyMark)},
				{"replies keep the pod's address, IPv6", markReplies(ipv6, config.ReplyMark)},
				{"nothing else of a pod leaves untranslated, IPv4", stopUntranslated(ipv4, config.ReplyMark)},
				{"nothing else of a pod leaves untranslated, IPv6", stopUntranslated(ipv6, config.ReplyMark)},
			}},
		},
	}
}

// family is what rules need to know of IPv4 or IPv6.
type family struct {
	number byte
	// source and destination are the offsets of the addresses in the network header, size is their length,
	// all in bytes.
	source, destination, size uint32
	// pods and exempt are the names of the sets.
	pods, exempt string
}

var (
	ipv4 = family{unix.NFPROTO_IPV4, 12, 16, 4, "pods4", "exempt4"}
	ipv6 = family{unix.NFPROTO_IPV6, 8, 24, 16, "pods6", "exempt6"}
)

// leavesThrough ends the chain for packets whose outgoing device has a name that begins with name.
func leavesThrough(name []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Verdict{Kind: expr.VerdictReturn},
	}
}

// podsToWorld matches packets from a pod to a destination that is not exempt.
func podsToWorld(f family) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.number}},
		&expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.size},
		&expr.Lookup{SourceRegister: 1, SetName: f.pods},
		&expr.Payload{OperationType: expr.PayloadLoad, DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.size},
		&expr.Lookup{SourceRegister: 1, SetName: f.exempt, Invert: true},
	}
}

// masquerade translates what podsToWorld matches. Ports are chosen fully at random: two processors that
// translate at the same moment then seldom choose the same port, which would cost one of them its packet.
func masquerade(f family) []expr.Any {
	return append(podsToWorld(f),
		&expr.Counter{},
		&expr.Masq{FullyRandom: true},
	)
}

// directionReply is IP_CT_DIR_REPLY of the kernel (uapi/linux/netfilter/nf_conntrack_tuple_common.h).
const directionReply = 1

// markReplies sets the bits of mark in the mark of the packets that podsToWorld matches and that answer to a
// connection which the world opened; ICMP errors about its packets are such answers too. Packets that
// connection tracking calls invalid are not. All packets come here, so what is cheap is asked first.
func markReplies(f family, mark uint32) []expr.Any {
	word := binaryutil.NativeEndian.PutUint32
	replies := []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{directionReply}},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: word(0)},
	}
	return append(append(replies, podsToWorld(f)...),
		&expr.Counter{},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(^mark), Xor: word(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	)
}

// stopUntranslated drops what podsToWorld matches and markReplies has not marked: packets that connection
// tracking calls invalid are never translated (a late segment of a connection that it has forgotten). What
// the node itself sends has no incoming device, which is asked first.
func stopUntranslated(f family, mark uint32) []expr.Any {
	word := binaryutil.NativeEndian.PutUint32
	unmarked := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(device.HostPrefix)},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte(device.HostPrefix)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(mark), Xor: word(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: word(0)},
	}
	return append(append(unmarked, podsToWorld(f)...),
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	)
}

func ourTable() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

func (c chain) kernel() *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	return &nftables.Chain{
		Name: c.name, Table: ourTable(), Type: c.kind,
		Hooknum: nftables.ChainHookPostrouting, Priority: &c.priority, Policy: &policy,
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
