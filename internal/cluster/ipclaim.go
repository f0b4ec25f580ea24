package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Errors of stores of IPClaims that callers branch on.
var (
	// ErrClaimExists: the address has a claim.
	ErrClaimExists = errors.New("the address is allocated")
	// ErrClaimChanged: the claim is another one than the caller has seen, or is gone.
	ErrClaimChanged = errors.New("the claim has changed")
)

// IPClaim is one allocated address. It is immutable once a store has returned it.
type IPClaim struct {
	Address netip.Addr
	// Pool is the name of the IPPool that it was allocated from.
	Pool string
	// Node, Namespace, Pod and PodUID are those of the pod.
	Node           string
	Namespace, Pod string
	PodUID         string
	// StatefulSet is the name of the StatefulSet that keeps the address; empty if there is none.
	StatefulSet string
	// ContainerID and IfName are the attachment that has the address. ContainerID is empty while the address is kept.
	ContainerID, IfName string
	// Conflict is when another machine was found to have the address, and ConflictReason which one.
	Conflict       time.Time
	ConflictReason string

	// Created is when the store got it; zero for claims in files. A Node that is younger takes no address from its pod.
	Created time.Time
	// UID and Version identify the object and its state in the store.
	UID, Version string
}

// Key gives the name.
func (c *IPClaim) Key() Key { return Key{Name: ClaimName(c.Address)} }

// Bound reports whether an attachment of a pod has the address.
func (c *IPClaim) Bound() bool { return c.ContainerID != "" }

// Conflicts reports whether another machine was found to have the address.
func (c *IPClaim) Conflicts() bool { return !c.Conflict.IsZero() }

// ClaimName gives the name of the claim of an address: the address with "-" for "." and ":", IPv6 in full. It is the
// same in every pool.
func ClaimName(a netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(a.StringExpanded())
}

// ClaimAddress gives the address of the claim with that name.
func ClaimAddress(name string) (netip.Addr, error) {
	separator := "."
	if strings.Count(name, "-") == 7 {
		separator = ":"
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(name, "-", separator))
	if err != nil || ClaimName(a) != name {
		return netip.Addr{}, fmt.Errorf("%q is not the name of an IPClaim, such as 192-0-2-10", name)
	}
	return a, nil
}

// ClaimIndex is what a store of claims keeps current. A claim that it gives is not older than one that it gave before.
type ClaimIndex interface {
	// Replace replaces all claims.
	Replace([]*IPClaim)
	// Set adds or replaces a claim.
	Set(*IPClaim)
	// Remove removes the claim of an address.
	Remove(netip.Addr)
}
