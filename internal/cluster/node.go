package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// nodeObject is a Node and where it stands.
type nodeObject struct {
	Node
	file string
	// Lines of the name, and of each address and CIDR in the order of Node.
	nameLine              int
	addressLine, cidrLine []int
}

// node checks a Node object by itself and reduces it. What it may not share with other nodes is
// checked by settle.
func (d document) node(n *corev1.Node) (nodeObject, []error) {
	var errs []error
	fail := func(path, format string, args ...any) {
		errs = append(errs, d.errorf(path, "Node %s: %s: %w", n.Name, path, fmt.Errorf(format, args...)))
	}

	object := nodeObject{Node: Node{Name: n.Name}, file: d.file, nameLine: lineOf(d.root, "metadata.name")}
	if n.Name == "" {
		fail("metadata.name", "missing")
	} else if reasons := validation.IsDNS1123Subdomain(n.Name); len(reasons) > 0 {
		fail("metadata.name", "%s", strings.Join(reasons, ", "))
	}

	for i, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		path := fmt.Sprintf("status.addresses[%d].address", i)
		addr, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil:
			fail(path, "%q is not an IP address", a.Address)
		case addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast():
			fail(path, "%s cannot be the address of a node", addr)
		default:
			object.Addresses = append(object.Addresses, addr)
			object.addressLine = append(object.addressLine, lineOf(d.root, path))
		}
	}

	paths, cidrs := podCIDRs(n)
	if n.Spec.PodCIDR != "" && len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
		fail("spec.podCIDR", "%s is not the first of spec.podCIDRs, %s", n.Spec.PodCIDR, n.Spec.PodCIDRs[0])
	}
	families := map[int]netip.Prefix{}
	for i, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			fail(paths[i], "%q is not a CIDR such as 10.1.0.0/24", text)
			continue
		}
		other, twice := families[prefix.Addr().BitLen()]
		switch {
		case prefix != prefix.Masked():
			fail(paths[i], "%s has host bits, %s would not", prefix, prefix.Masked())
		case prefix.Addr().Is4In6():
			fail(paths[i], "%s is IPv4 written as IPv6", prefix)
		case twice:
			fail(paths[i], "%s is of the same family as %s, one of each is allowed", prefix, other)
		default:
			families[prefix.Addr().BitLen()] = prefix
			object.PodCIDRs = append(object.PodCIDRs, prefix)
			object.cidrLine = append(object.cidrLine, lineOf(d.root, paths[i]))
		}
	}
	return object, errs
}

// podCIDRs gives the node's ranges and the path of each; spec.podCIDR counts when it stands alone.
func podCIDRs(n *corev1.Node) (paths, cidrs []string) {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{"spec.podCIDR"}, []string{n.Spec.PodCIDR}
	}
	for i := range n.Spec.PodCIDRs {
		paths = append(paths, fmt.Sprintf("spec.podCIDRs[%d]", i))
	}
	return paths, n.Spec.PodCIDRs
}
