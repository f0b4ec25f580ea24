package cluster

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// The kinds of pod devices that an IPPool may name.
const (
	DeviceVeth    = "veth"
	DeviceNetkit  = "netkit"
	DeviceMacvlan = "macvlan"
)

// poolPartsMax bounds the ranges, the exclusions and the routes of an IPPool. The CustomResourceDefinition has the same
// bound.
const poolPartsMax = 256

// IPPool is a pool of addresses of a physical network.
type IPPool struct {
	Name string
	// UID is that of the object; empty if it has none.
	UID string
	// Created decides between pools with the same addresses.
	Created time.Time
	// Invalid says why the pool is invalid, in a sentence without its name; empty if it is valid. A pod that an invalid
	// pool selects gets no address: its last valid state, or another pool, may be what it must not have.
	Invalid string

	// Subnets are at most one of each family, IPv4 first.
	Subnets []netip.Prefix
	// Ranges are the parts that pods may have, without the addresses that a subnet keeps for itself, the gateways and the
	// exclusions. They are sorted and do not overlap.
	Ranges []netipx.IPRange
	// Gateways are at most one of each family.
	Gateways []netip.Addr
	Routes   []IPPoolRoute

	// Uplink is the name of a device or an address of it; empty means the device with an address in a subnet. With a VLAN it is the device
	// below that of the VLAN; empty means the uplink to the other nodes. 0 is no VLAN.
	Uplink string
	VLAN   uint16
	// Device is one of the kinds of pod devices; empty means the node's.
	Device string

	// Namespaces, Pods and Nodes restrict the pods; nil: not at all.
	Namespaces, Pods, Nodes *Selector
	Default, Disabled       bool
	// Probe says that the network is asked whether another machine has a new address.
	Probe bool
	// NamespaceMax is how many addresses of a family one namespace may have; 0: see the package ippool.
	NamespaceMax int
}

// SameLink reports whether pods of both pools have the same kind of device on the same uplink.
func (p *IPPool) SameLink(other *IPPool) bool {
	return p.Device == other.Device && p.Uplink == other.Uplink && p.VLAN == other.VLAN
}

// Key gives the name.
func (p *IPPool) Key() Key { return Key{Name: p.Name} }

// IPPoolRoute is a route of the pods of a pool.
type IPPoolRoute struct {
	To  netip.Prefix
	Via netip.Addr
}

// Compare orders pools by age: of two with the same address the first one has it.
func (p *IPPool) Compare(other *IPPool) int {
	return cmp.Or(p.Created.Compare(other.Created), cmp.Compare(p.Name, other.Name))
}

// reduceIPPool checks an IPPool and reduces it. It gives a result also with errors: see IPPool.Invalid.
func reduceIPPool(p *v1alpha1.IPPool) (*IPPool, []fieldError) {
	c := poolChecks{spec: &p.Spec}
	c.name(p.Name, validation.IsDNS1123Subdomain)
	if p.Name == v1alpha1.NoIPPool {
		c.fail("metadata.name", "%q is what the annotation %s has for no pool", p.Name, v1alpha1.AnnotationIPPool)
	}
	pool := &IPPool{
		Name: p.Name, UID: string(p.UID), Created: p.CreationTimestamp.UTC(),
		Uplink: p.Spec.Uplink, Device: p.Spec.Device, Default: p.Spec.Default, Disabled: p.Spec.Disabled, NamespaceMax: int(p.Spec.NamespaceMax),
		Probe: p.Spec.Probe == nil || *p.Spec.Probe,
	}
	pool.Namespaces = c.selects("spec.namespaceSelector", p.Spec.NamespaceSelector)
	pool.Pods = c.selects("spec.podSelector", p.Spec.PodSelector)
	pool.Nodes = c.selects("spec.nodeSelector", p.Spec.NodeSelector)
	pool.Subnets = c.subnets()
	pool.Gateways = c.gateways(pool.Subnets)
	pool.Ranges = c.ranges(pool.Subnets, pool.Gateways)
	pool.Routes = c.routes(pool.Subnets)
	if !slices.Contains([]string{"", DeviceVeth, DeviceNetkit, DeviceMacvlan}, p.Spec.Device) {
		c.fail("spec.device", "%q is none of %s, %s and %s", p.Spec.Device, DeviceMacvlan, DeviceVeth, DeviceNetkit)
	}
	pool.VLAN = uint16(max(0, min(p.Spec.VLAN, 4094)))
	if p.Spec.VLAN < 0 || p.Spec.VLAN > 4094 {
		c.fail("spec.vlan", "%d is not a VLAN (1 to 4094, 0 for none)", p.Spec.VLAN)
	}
	if p.Spec.NamespaceMax < 0 {
		c.fail("spec.namespaceMax", "%d is negative", p.Spec.NamespaceMax)
	}
	c.uplink()
	if len(c.errs) > 0 {
		pool.Invalid = inShort(c.errs)
		pool.Ranges = nil
	}
	return pool, c.errs
}

// poolChecks reads the fields of an IPPool.
type poolChecks struct {
	checks
	spec *v1alpha1.IPPoolSpec
}

// selects reads a selector; nil if there is none. An invalid one selects nothing: else a typo in one pool would keep all
// pods from having an address.
func (c *poolChecks) selects(field string, from *metav1.LabelSelector) *Selector {
	if from == nil {
		return nil
	}
	before := len(c.errs)
	selector := c.selector(field, from)
	if len(c.errs) > before {
		return &Selector{[]Requirement{{Operator: metav1.LabelSelectorOpIn}}}
	}
	return &selector
}

func (c *poolChecks) subnets() (all []netip.Prefix) {
	if len(c.spec.Subnets) == 0 {
		c.fail("spec.subnets", "missing")
	}
	for i, text := range c.spec.Subnets {
		field := fmt.Sprintf("spec.subnets[%d]", i)
		subnet, ok := c.prefix(field, text)
		if !ok {
			continue
		}
		if a := subnet.Addr(); subnet.Bits() == 0 || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			c.fail(field, "%s cannot be a network of pods", subnet)
			continue
		}
		if at := slices.IndexFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() == subnet.Addr().Is4() }); at >= 0 {
			c.fail(field, "%s is of the same family as %s, one of each is allowed", subnet, all[at])
			continue
		}
		all = append(all, subnet)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return all
}

// subnetOf gives the subnet with an address.
func subnetOf(subnets []netip.Prefix, a netip.Addr) (netip.Prefix, bool) {
	at := slices.IndexFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) })
	if at < 0 {
		return netip.Prefix{}, false
	}
	return subnets[at], true
}

func (c *poolChecks) gateways(subnets []netip.Prefix) (all []netip.Addr) {
	for i, text := range c.spec.Gateways {
		field := fmt.Sprintf("spec.gateways[%d]", i)
		addr, ok := c.address(field, text, "a gateway")
		if !ok {
			continue
		}
		if _, in := subnetOf(subnets, addr); !in && !addr.IsLinkLocalUnicast() {
			c.fail(field, "%s is in none of spec.subnets", addr)
		}
		if at := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }); at >= 0 {
			c.fail(field, "%s is of the same family as %s, one of each is allowed", addr, all[at])
		}
		all = append(all, addr)
	}
	return all
}

// ranges gives the addresses that pods may have.
func (c *poolChecks) ranges(subnets []netip.Prefix, gateways []netip.Addr) []netipx.IPRange {
	var b netipx.IPSetBuilder
	given := c.parts("spec.ranges", c.spec.Ranges, subnets)
	for _, r := range given {
		b.AddRange(r)
	}
	for _, subnet := range subnets {
		if !slices.ContainsFunc(given, func(r netipx.IPRange) bool { return subnet.Contains(r.From()) }) {
			b.AddPrefix(subnet)
		}
		if whole := subnet.Addr().BitLen() - subnet.Bits(); whole > 1 { // RFC 3021, RFC 6164: both addresses of a pair are hosts'
			b.Remove(subnet.Addr())
			if subnet.Addr().Is4() {
				b.Remove(netipx.PrefixLastIP(subnet))
			}
		}
	}
	for _, r := range c.parts("spec.exclude", c.spec.Exclude, subnets) {
		b.RemoveRange(r)
	}
	for _, g := range gateways {
		b.Remove(g)
	}
	for _, r := range c.spec.Routes {
		if via, err := netip.ParseAddr(r.Via); err == nil {
			b.Remove(via)
		}
	}
	set, err := b.IPSet()
	if err != nil {
		c.fail("spec.ranges", "%w", err)
		return nil
	}
	for _, subnet := range subnets {
		if len(c.errs) == 0 && !set.OverlapsPrefix(subnet) {
			c.fail("spec.ranges", "%s has no address for a pod", subnet)
		}
	}
	return set.Ranges()
}

// parts reads ranges within the subnets.
func (c *poolChecks) parts(field string, texts []string, subnets []netip.Prefix) (all []netipx.IPRange) {
	if len(texts) > poolPartsMax {
		c.fail(field, "%d are too many, at most %d", len(texts), poolPartsMax)
		return nil
	}
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", field, i)
		r, ok := parseRange(text)
		if !ok {
			c.fail(at, "%q is neither an address, nor a CIDR, nor a range such as 192.0.2.10-192.0.2.20", text)
			continue
		}
		if subnet, in := subnetOf(subnets, r.From()); !in || !subnet.Contains(r.To()) {
			c.fail(at, "%s is in none of spec.subnets", text)
			continue
		}
		all = append(all, r)
	}
	return all
}

// parseRange reads an address, a CIDR, or "first-last".
func parseRange(text string) (netipx.IPRange, bool) {
	first, last, isRange := strings.Cut(text, "-")
	switch {
	case isRange:
		from, err := netip.ParseAddr(strings.TrimSpace(first))
		to, errTo := netip.ParseAddr(strings.TrimSpace(last))
		r := netipx.IPRangeFrom(from, to)
		return r, err == nil && errTo == nil && r.IsValid() && !from.Is4In6() && from.Zone() == ""
	case strings.Contains(text, "/"):
		prefix, err := netip.ParsePrefix(text)
		return netipx.RangeOfPrefix(prefix), err == nil && !prefix.Addr().Is4In6() && prefix == prefix.Masked()
	}
	addr, err := netip.ParseAddr(text)
	return netipx.IPRangeFrom(addr, addr), err == nil && !addr.Is4In6() && addr.Zone() == ""
}

func (c *poolChecks) routes(subnets []netip.Prefix) (all []IPPoolRoute) {
	if len(c.spec.Routes) > poolPartsMax {
		c.fail("spec.routes", "%d are too many, at most %d", len(c.spec.Routes), poolPartsMax)
		return nil
	}
	for i, r := range c.spec.Routes {
		field := fmt.Sprintf("spec.routes[%d]", i)
		to, ok := c.prefix(field+".to", r.To)
		via, okVia := c.address(field+".via", r.Via, "a router")
		if !ok || !okVia {
			continue
		}
		if to.Addr().Is4() != via.Is4() {
			c.fail(field+".via", "%s is not of the family of %s", via, to)
		}
		if _, in := subnetOf(subnets, via); !in {
			c.fail(field+".via", "%s is in none of spec.subnets", via)
		}
		all = append(all, IPPoolRoute{to, via})
	}
	return all
}

// uplink checks the name of a device as the kernel does. What is no such name has to be an address.
func (c *poolChecks) uplink() {
	text := c.spec.Uplink
	if text == "" {
		return
	}
	if net.ParseIP(text) != nil {
		c.address("spec.uplink", text, "a device")
		return
	}
	if len(text) > 15 || text == "." || text == ".." || strings.ContainsAny(text, "/: \t\n\v\f\r\x00") {
		c.fail("spec.uplink", "%q is neither the name of a device nor an address", text)
	}
}
