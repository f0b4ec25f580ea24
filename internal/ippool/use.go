package ippool

import (
	"fmt"
	"strings"
)

// Use is how many addresses of one family of a pool are in use.
type Use struct {
	// Taken are the addresses of the space that have claims, whoever has them. Conflicts are those of them that another
	// machine has.
	Taken, Conflicts int64
	// Allocated are the claims that name the pool.
	Allocated int64
	// Namespaces has the claims in the space by namespace.
	Namespaces map[string]int64
}

// ExhaustedError says why a pool gives no address.
type ExhaustedError struct {
	Pool   *Pool
	Family Family
	// Namespace is set where the pool has free addresses, and none for this namespace; Held is how many it has.
	Namespace string
	Held      int64
	Use       Use
}

// Error names the pool, the namespace, and what would help.
func (e *ExhaustedError) Error() string {
	total := e.Pool.Spaces[e.Family].Size()
	switch {
	case total == 0:
		return strings.Join(append([]string{fmt.Sprintf("IPPool %s has no %s address for pods", e.Pool.Name, e.Family)}, e.Pool.Overlaps...), "; ")
	case e.Namespace == "":
		return fmt.Sprintf("IPPool %s has no free %s address: all %d are in use", e.Pool.Name, e.Family, total)
	case e.Pool.NamespaceMax > 0:
		return fmt.Sprintf("namespace %s has %d %s addresses of IPPool %s, as many as its spec.namespaceMax allows", e.Namespace, e.Held, e.Family, e.Pool.Name)
	}
	return fmt.Sprintf("namespace %s has %d %s addresses of IPPool %s, and %d of %d are free: "+
		"one namespace may have as many as it leaves to the others (set spec.namespaceMax to change this)",
		e.Namespace, e.Held, e.Family, e.Pool.Name, total-e.Use.Taken, total)
}

// The bounds of addresses that are set aside for conflicts: a part of the pool, at least some, and not too many objects.
const (
	conflictsPart = 8
	conflictsMin  = 2
	conflictsMax  = 1024
)

// SetsAside reports whether another address may be set aside because another machine seems to have it. Who answers for
// every address of a pool, by intent or as a router with proxy ARP, takes so many addresses from it and no more.
func (p *Pool) SetsAside(f Family, use Use) bool {
	return use.Conflicts < min(max(p.Spaces[f].Size()/conflictsPart, conflictsMin), conflictsMax)
}

// Admits is nil if a namespace may have another address of a family.
//
// By spec.namespaceMax a namespace may have so many. Without it, and if several namespaces may use the pool, it may have
// another one while more are free than it has. So one namespace gets half of the pool, two get a third each, and whatever
// some take, the next one finds as many free as the largest has.
func (p *Pool) Admits(namespace string, f Family, use Use) error {
	free, held := p.Spaces[f].Size()-use.Taken, use.Namespaces[namespace]
	switch {
	case free <= 0:
		return &ExhaustedError{Pool: p, Family: f, Use: use}
	case p.NamespaceMax > 0 && held >= int64(p.NamespaceMax), p.NamespaceMax == 0 && p.Shared && held >= free:
		return &ExhaustedError{Pool: p, Family: f, Namespace: namespace, Held: held, Use: use}
	}
	return nil
}
