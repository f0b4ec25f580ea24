package ipsec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// policy is a policy of the kernel: packets of this direction to this prefix need this tunnel.
type policy struct {
	dir netlink.Dir
	to  netip.Prefix
}

// need is the tunnel that packets need. For received packets it is any of Beeline's of this outer family.
type need struct {
	local, remote netip.Addr
	spi           uint32
}

// policiesOf are the policies of a specification. The kernel's stack delivers and forwards what a tunnel has carried only with
// a policy for the inner family. Its wildcard addresses match the states of both outer families; from_ipsec has compared the source with
// the node that sent it.
func policiesOf(spec Spec) map[policy]need {
	wanted := map[policy]need{}
	if len(spec.Peers) > 0 || spec.Partial {
		for _, ipv6 := range []bool{false, true} {
			for _, dir := range []netlink.Dir{netlink.XFRM_DIR_IN, netlink.XFRM_DIR_FWD} {
				all := anyPrefix(ipv6)
				wanted[policy{dir, all}] = need{local: all.Addr(), remote: all.Addr()}
			}
		}
	}
	for _, p := range spec.Peers {
		for _, to := range p.Prefixes {
			if spi, ok := p.Use[to.Addr().Is6()]; ok {
				wanted[policy{netlink.XFRM_DIR_OUT, to}] = need{p.Local, p.Remote, spi}
			}
		}
	}
	return wanted
}

// syncPolicies makes Beeline's policies equal to those wanted. A policy that changes is replaced at once.
func syncPolicies(spec Spec) error {
	present, err := ourPolicies()
	if err != nil {
		return err
	}
	wanted := policiesOf(spec)
	var errs []error
	for p, n := range wanted {
		if have, ok := present[p]; ok && have == n {
			continue
		}
		if err := netlink.XfrmPolicyUpdate(p.kernel(n)); err != nil {
			errs = append(errs, fmt.Errorf("set IPsec policy for %s: %w", p.to, err))
		}
	}
	for p := range present {
		if _, ok := wanted[p]; ok || spec.Partial {
			continue
		}
		if err := netlink.XfrmPolicyDel(p.kernel(need{})); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete IPsec policy for %s: %w", p.to, err))
		}
	}
	return errors.Join(errs...)
}

func (p policy) kernel(n need) *netlink.XfrmPolicy {
	k := &netlink.XfrmPolicy{Dst: rtnl.IPNet(p.to), Src: rtnl.IPNet(anyPrefix(p.to.Addr().Is6())), Dir: p.dir, Ifid: InterfaceID}
	if n.remote.IsValid() {
		k.Tmpls = []netlink.XfrmPolicyTmpl{{
			Src: n.local.AsSlice(), Dst: n.remote.AsSlice(), Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL,
			Spi: int(n.spi), Reqid: InterfaceID,
		}}
	}
	return k
}

// ourPolicies lists Beeline's policies. It reads the messages itself: netlink.XfrmPolicyList takes an IPv6 prefix like fd00:1::/64
// for an IPv4 address.
func ourPolicies() (map[policy]need, error) {
	messages, err := rtnl.Dump(func() ([][]byte, error) {
		return nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP).Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWPOLICY)
	})
	if err != nil {
		return nil, fmt.Errorf("list IPsec policies: %w", err)
	}
	ours := map[policy]need{}
	for _, m := range messages {
		if len(m) < nl.SizeofXfrmUserpolicyInfo {
			return nil, fmt.Errorf("list IPsec policies: %w", rtnl.ErrMalformed)
		}
		info := nl.DeserializeXfrmUserpolicyInfo(m)
		attributes, err := nl.ParseRouteAttr(m[nl.SizeofXfrmUserpolicyInfo:])
		if err != nil {
			return nil, fmt.Errorf("list IPsec policies: %w", err)
		}
		if n, is := needOf(attributes); is {
			to := netip.PrefixFrom(address(&info.Sel.Daddr, info.Sel.Family), int(info.Sel.PrefixlenD))
			ours[policy{netlink.Dir(info.Dir), to}] = n
		}
	}
	return ours, nil
}

// needOf reads the attributes of a policy; ours is false for one of others.
func needOf(attributes []syscall.NetlinkRouteAttr) (n need, ours bool) {
	for _, a := range attributes {
		switch {
		case a.Attr.Type == nl.XFRMA_IF_ID && len(a.Value) >= 4:
			ours = binary.NativeEndian.Uint32(a.Value) == InterfaceID
		case a.Attr.Type == nl.XFRMA_TMPL && len(a.Value) >= nl.SizeofXfrmUserTmpl:
			t := nl.DeserializeXfrmUserTmpl(a.Value)
			n = need{address(&t.Saddr, t.Family), address(&t.XfrmId.Daddr, t.Family), nl.Swap32(t.XfrmId.Spi)}
		}
	}
	return n, ours
}

func address(x *nl.XfrmAddress, family uint16) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(x[:4]))
	}
	return netip.AddrFrom16([16]byte(x[:]))
}
