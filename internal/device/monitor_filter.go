package device

import (
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FilterTable is the nftables table, in family inet, that belongs to Beeline.
const FilterTable = "beeline"

// filterFeed tells about changes of nftables. It matters when somebody flushes the ruleset, as restarting the
// firewalls of distributions does.
var filterFeed = feed{
	what:     "nftables changes",
	protocol: unix.NETLINK_NETFILTER,
	groups:   []uint{unix.NFNLGRP_NFTABLES},
	changeOf: filterChangeOf,
	lost:     Change{Filter: true},
}

// filterChangeOf reads one message of filterFeed: struct nfgenmsg, then attributes. Whatever the message is
// about, table, chain, rule, set or its elements, the first kind of attribute names the table.
func filterChangeOf(message syscall.NetlinkMessage) Change {
	const sizeofNfgenmsg = 4
	if message.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(message.Data) < sizeofNfgenmsg || message.Data[0] != unix.NFPROTO_INET {
		return Change{}
	}
	attributes, err := nl.ParseRouteAttr(message.Data[sizeofNfgenmsg:])
	if err != nil {
		return Change{Filter: true} // rather once too often
	}
	for _, a := range attributes {
		if a.Attr.Type&^unix.NLA_F_NESTED == unix.NFTA_TABLE_NAME {
			return Change{Filter: unix.ByteSliceToString(a.Value) == FilterTable}
		}
	}
	return Change{}
}
