package ipseckeys

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Ledger remembers which keys this node has used in its present epoch, by what they are derived from: the peer's name and
// epoch, and the generation. A tunnel that has to be made anew with the same keys would begin with the sequence numbers that it
// had before, so the node begins a new epoch instead.
type Ledger struct {
	// Epoch is this node's own.
	Epoch string `json:"epoch"`
	// Boot is the kernel's boot ID, Created the time of the Node object. With another one the epoch is over: the kernel has
	// no states any more, or the other nodes have removed theirs.
	Boot    string    `json:"boot"`
	Created time.Time `json:"created"`
	// IPv4 and IPv6 are the addresses of this node that others send to.
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
	// Peers are by the name of their Node.
	Peers map[string]*peerLedger `json:"peers"`
}

// peerLedger is what was used with one peer.
type peerLedger struct {
	Epoch string `json:"epoch"`
	// Local and Remote are the outer addresses.
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	// Made are the generations whose tunnels were made in this epoch of the peer.
	Made []Generation `json:"made"`
	// Retired are the peer's earlier epochs: the first retiredDigits of each.
	Retired []string `json:"retired,omitempty"`
	// Gone is when the peer's Node was last seen, if it is not there.
	Gone time.Time `json:"gone,omitzero"`
}

// Bounds of a ledger. A peer with more epochs is refused; a node with more peers begins a new epoch.
const (
	retiredMax    = 1000  // a peer reboots so many times while this node does not
	retiredDigits = 16    // who makes two epochs alike makes one that is refused
	peersMax      = 20000 // Kubernetes supports 5,000 nodes at a time
)

// newLedger begins an epoch.
func newLedger(boot string, created time.Time) (*Ledger, error) {
	epoch := make([]byte, epochBytes)
	if _, err := rand.Read(epoch); err != nil {
		return nil, fmt.Errorf("make an epoch of IPsec: %w", err)
	}
	return &Ledger{Epoch: hex.EncodeToString(epoch), Boot: boot, Created: created, Peers: map[string]*peerLedger{}}, nil
}

// readLedger reads what an agent has saved. Without a file, or with one that is not whole or of another boot, ok is false.
func readLedger(path, boot string) (l *Ledger, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the epoch of IPsec: %w", err)
	}
	if json.Unmarshal(text, &l) != nil || l == nil || l.Boot != boot {
		return nil, false, nil
	}
	if _, err := ParseAnnouncement(l.Epoch + " 1"); err != nil || l.Peers == nil {
		return nil, false, nil
	}
	for _, p := range l.Peers {
		if p == nil || len(p.Epoch) != 2*epochBytes && p.Epoch != "" {
			return nil, false, nil
		}
	}
	return l, true, nil
}

// save writes the ledger to the disk, before the tunnels are made.
func (l *Ledger) save(path string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make directory of the epoch of IPsec: %w", err)
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return fmt.Errorf("write the epoch of IPsec: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write the epoch of IPsec: %w", err)
	}
	return nil
}

// moved reports whether the Node has another address than the one that others send to. They prefer IPv4, and keep to the
// address until the epoch ends: see meet.
func (l *Ledger) moved(own []netip.Addr) bool {
	if len(own) == 0 || !l.IPv4.IsValid() && !l.IPv6.IsValid() {
		return false
	}
	ipv4, ipv6 := firstOf(own, true), firstOf(own, false)
	return ipv4 != l.IPv4 || ipv6.IsValid() && l.IPv6.IsValid() && ipv6 != l.IPv6
}

// stay notes the addresses of a Node that has not moved.
func (l *Ledger) stay(own []netip.Addr) (changed bool) {
	before := *l
	l.IPv4 = cmp.Or(l.IPv4, firstOf(own, true))
	l.IPv6 = cmp.Or(l.IPv6, firstOf(own, false))
	return l.IPv4 != before.IPv4 || l.IPv6 != before.IPv6
}

// firstOf is the first address of a family; invalid without.
func firstOf(all []netip.Addr, ipv4 bool) netip.Addr {
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == ipv4 }); i >= 0 {
		return all[i]
	}
	return netip.Addr{}
}

// meet takes over what a peer announces. It is an error to announce an epoch that the peer had before, or to have another address
// within one epoch: either would need a state anew with a key that this node has used, so this node would have to begin a new
// epoch, and one peer could have it do so at will.
func (l *Ledger) meet(peer, epoch string, remote netip.Addr) (changed bool, err error) {
	p := l.Peers[peer]
	switch {
	case p == nil:
		l.Peers[peer] = &peerLedger{Epoch: epoch}
		return true, nil
	case p.Epoch == epoch && p.Remote.IsValid() && p.Remote != remote:
		return false, fmt.Errorf("its address was %s when it announced its epoch of IPsec, and is %s: its agent has to announce another epoch", p.Remote, remote)
	case p.Epoch == epoch:
		changed = !p.Gone.IsZero()
		p.Gone = time.Time{}
		return changed, nil
	case slices.Contains(p.Retired, epoch[:retiredDigits]):
		return false, fmt.Errorf("it announces an epoch of IPsec that it had before, whose keys are used up: delete its file of --ipsec-state (%s by default), and restart its agent", DefaultLedger)
	case len(p.Retired) >= retiredMax:
		return false, fmt.Errorf("it has announced more than %d epochs of IPsec: delete this node's file of --ipsec-state (%s by default), and restart its agent", retiredMax, DefaultLedger)
	}
	if p.Epoch != "" {
		p.Retired = append(p.Retired, p.Epoch[:retiredDigits])
	}
	p.Epoch, p.Made, p.Gone = epoch, nil, time.Time{}
	return true, nil
}

// part notes which Nodes are gone. kept are peers that are not in use and whose tunnels stay: their Nodes exist, or may come back.
// A peer whose Node is gone for longer has to come back with another epoch.
func (l *Ledger) part(inUse, exist map[string]bool, now time.Time) (kept []string, changed bool) {
	for name, p := range l.Peers {
		switch {
		case inUse[name] || p.Epoch == "":
			continue
		case exist[name]:
			changed = changed || !p.Gone.IsZero()
			p.Gone = time.Time{}
		case p.Gone.IsZero():
			p.Gone, changed = now, true
		case now.Sub(p.Gone) > goneFor:
			p.Retired, p.Epoch, p.Made, changed = append(p.Retired, p.Epoch[:retiredDigits]), "", nil, true
			continue
		}
		kept = append(kept, name)
	}
	slices.Sort(kept)
	return kept, changed
}

// full reports whether the ledger has to begin again.
func (l *Ledger) full() bool { return len(l.Peers) > peersMax }
