package main

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

func TestPrintIPPools(t *testing.T) {
	both := []agentapi.IPPoolUse{{Family: "IPv4", Total: 90, Allocated: 3, Free: 86, Conflicts: 1}, {Family: "IPv6", Total: 2, Allocated: 2}}
	pools := []agentapi.IPPool{
		{Name: "lab", Subnets: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Device: "macvlan", Uplink: "eth1", VLAN: 7, Disabled: true, Families: both[:1]},
		{Name: "office", Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}, Default: true, Families: both, Overlaps: []string{"IPPool lab, which is older, has a part of its addresses"}},
		{Name: "typo", Invalid: "spec.subnets: missing"},
	}
	var got bytes.Buffer
	if err := printIPPools(&got, pools, false); err != nil {
		t.Fatal(err)
	}
	want := `IPPOOL  SUBNETS                     DEVICE      TOTAL  ALLOCATED  FREE   STATE
lab     198.51.100.0/24             macvlan     90     3          86     disabled; 1 IPv4 addresses in use by other machines
office  192.0.2.0/24 2001:db8::/64  the node's  90, 2  3, 2       86, 0  default; 1 IPv4 addresses in use by other machines; no free IPv6 address; IPPool lab, which is older, has a part of its addresses
typo    -                           the node's  -      -          -      invalid: spec.subnets: missing
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	got.Reset()
	if err := printIPPools(&got, nil, true); err != nil || got.String() != "No IPPools in the cluster.\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}
