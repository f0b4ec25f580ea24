// Package masquerade gives packets that pods send to the world the node's address, with nftables, and marks
// those that rightly keep the pod's. It owns one table, "inet beeline", which `nft list table inet beeline` shows; nothing else is touched.
//
// Functions act in the network namespace of the calling thread.
package masquerade

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Config says whose packets are translated, and where to they are not.
type Config struct {
	// PodCIDRs are the ranges of the pods of this node, both families.
	PodCIDRs []netip.Prefix
	// Exempt are destinations that see the pod's own address: all pod ranges and node addresses of the
	// cluster. Link-local, multicast and broadcast destinations are always exempt.
	Exempt []netip.Prefix
	// ReplyMark are the bits to set in the mark of packets by which pods answer to connections that the world
	// opened to a pod's own address: those leave untranslated, and whoever looks for packets that should have been
	// translated can tell them. 0 sets none.
	ReplyMark uint32
}

// Sync makes the table what config asks for and tells whether it had to change anything. Addresses that
// came or went are changed in place, in one transaction; if anything else differs (somebody flushed the
// rules, an older version made them), the table is replaced as a whole, again in one transaction. Connections
// that are already translated stay so; those that should have been begin anew (see forgetUntranslated).
func Sync(config Config) (changed bool, err error) {
	wanted := layoutOf(config)
	connection, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	present, err := read(connection, wanted)
	if err != nil {
		return false, fmt.Errorf("read table %s: %w", tableName, err)
	}
	if present.sound {
		changed, err = update(connection, wanted, present)
	} else {
		changed, err = true, replace(connection, wanted, present.table)
	}
	if err != nil || !changed {
		return changed, wrap(err)
	}
	return true, forgetUntranslated(config)
}

// Remove deletes the table and tells whether there was one. It is no error if not, nor is a kernel without nftables.
func Remove() (removed bool, err error) {
	connection, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	connection.DelTable(ourTable())
	err = connection.Flush()
	for _, absent := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
		if errors.Is(err, absent) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("delete table %s: %w", tableName, err)
	}
	return true, nil
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("change table %s: %w", tableName, err)
	}
	return nil
}

// replace deletes the table if it exists and makes it anew, in one transaction.
func replace(connection *nftables.Conn, wanted layout, exists bool) error {
	if exists {
		connection.DelTable(ourTable())
	}
	connection.AddTable(ourTable())
	for _, set := range wanted.sets {
		if err := connection.AddSet(set.kernel(), set.elements()); err != nil {
			return fmt.Errorf("set %s: %w", set.name, err)
		}
	}
	for _, chain := range wanted.chains {
		made := connection.AddChain(chain.kernel())
		for _, rule := range chain.rules {
			connection.AddRule(rule.kernel(made))
		}
	}
	return connection.Flush()
}

// update adds and deletes the set elements that differ, in one transaction.
func update(connection *nftables.Conn, wanted layout, present state) (changed bool, err error) {
	for _, set := range wanted.sets {
		gone, added := difference(present.ranges[set.name], set.ranges)
		if len(gone) > 0 {
			if err := connection.SetDeleteElements(set.kernel(), elementsOf(gone)); err != nil {
				return false, fmt.Errorf("set %s: %w", set.name, err)
			}
		}
		if len(added) > 0 {
			if err := connection.SetAddElements(set.kernel(), elementsOf(added)); err != nil {
				return false, fmt.Errorf("set %s: %w", set.name, err)
			}
		}
		changed = changed || len(gone)+len(added) > 0
	}
	if !changed {
		return false, nil
	}
	return true, connection.Flush()
}

func elementsOf(ranges []addressRange) []nftables.SetElement {
	return set{ranges: ranges}.elements()
}

// difference returns what is only in old and what is only in new.
func difference(old, wanted []addressRange) (gone, added []addressRange) {
	in := map[addressRange]bool{}
	for _, r := range wanted {
		in[r] = true
	}
	for _, r := range old {
		if in[r] {
			delete(in, r)
		} else {
			gone = append(gone, r)
		}
	}
	for _, r := range wanted {
		if in[r] {
			added = append(added, r)
		}
	}
	return gone, added
}
