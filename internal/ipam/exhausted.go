package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// namedNamespaces is how many namespaces an ExhaustedError names; it counts the others.
const namedNamespaces = 3

// NamespaceUse is how many addresses the pods of a namespace hold. Namespace is empty for containers outside
// Kubernetes.
type NamespaceUse struct {
	Namespace string
	Used      int
}

// ExhaustedError says that a family has no free address, and which namespaces have them.
type ExhaustedError struct {
	Prefixes []netip.Prefix
	// Used is the number of addresses in use: all that the pool may allocate.
	Used int
	// Avoided is the number of addresses that others on the node have: see Pool.Avoid.
	Avoided int
	// By is sorted by use, most first, then by name.
	By []NamespaceUse
}

// Error names the ranges, the number of addresses in use, and the namespaces with most of them.
func (e *ExhaustedError) Error() string {
	var ranges, users []string
	for _, prefix := range e.Prefixes {
		ranges = append(ranges, prefix.String())
	}
	rest := 0
	for i, use := range e.By {
		switch {
		case i >= namedNamespaces:
			rest += use.Used
		case use.Namespace == "":
			users = append(users, fmt.Sprintf("%d by containers without a namespace", use.Used))
		default:
			users = append(users, fmt.Sprintf("%d by namespace %s", use.Used, use.Namespace))
		}
	}
	if others := len(e.By) - namedNamespaces; others > 0 {
		users = append(users, fmt.Sprintf("%d by %d more", rest, others))
	}
	if e.Avoided > 0 {
		users = append(users, fmt.Sprintf("and %d more are in use outside of the pool, such as by devices of a former network", e.Avoided))
	}
	return fmt.Sprintf("no free address in %s: all %d are in use, %s",
		strings.Join(ranges, " and "), e.Used, strings.Join(users, ", "))
}

func (p *Pool) exhausted(ranges []*addrRange) *ExhaustedError {
	e := &ExhaustedError{}
	count := map[string]int{}
	for _, r := range ranges {
		e.Prefixes = append(e.Prefixes, r.prefix)
		e.Used += len(r.used)
		e.Avoided += r.withheld(false)
		for addr := range r.used {
			count[p.allocations[addr].Namespace]++
		}
	}
	for namespace, used := range count {
		e.By = append(e.By, NamespaceUse{Namespace: namespace, Used: used})
	}
	slices.SortFunc(e.By, func(a, b NamespaceUse) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Namespace, b.Namespace))
	})
	return e
}
