// Package nat keeps the tables of connections that are translated packet by packet: Services at devices, NodePorts and masquerade. The datapath
// writes them; this package expires, counts and removes entries.
package nat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Table has the NAT entries. The datapath writes them; Table removes expired ones. Its methods are safe for
// concurrent use.
//
// A connection has an entry per direction. Both are removed together, when neither direction has had a packet for the
// timeout of their common state.
type Table struct {
	mu         sync.Mutex
	entries    *ebpf.Map
	pending    *ebpf.Map
	pods       natPods
	fragments  *ebpf.Map
	generation *table.Generation
	slot       uint32 // of the entries that this call inspects
	// crowded: `nat` is more than half full. Then an RST of one end ends an entry, and no entry stays in TIME-WAIT.
	crowded bool

	countsMu sync.Mutex
	counts   []Count
}

// New returns a table on these maps.
func New(m *bpf.Maps, g *table.Generation) *Table {
	return &Table{
		entries: m.Nat, pending: m.NatPending, pods: natPods{m.NatPods}, fragments: m.Fragments, generation: g,
	}
}

// Expire removes entries that are expired at now (see Monotonic) and fragment state, and returns how many entries it
// removed. It reads whole maps in batches; call it every few seconds.
func (c *Table) Expire(now time.Duration) (removed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slot = (c.slot + 1) % slots
	tally := tally{}
	pods, err := c.pods.read()
	if err != nil {
		return 0, err
	}
	for _, m := range []*ebpf.Map{c.entries, c.pending} {
		n, e := c.expire(m, now, tally, pods)
		removed += n
		err = errors.Join(err, e)
	}
	if err != nil {
		return removed, err // an entry that was not read may need a listed pod
	}
	c.countsMu.Lock()
	c.counts = tally.sorted()
	c.countsMu.Unlock()
	n, err := c.forgetPods(pods, now)
	removed += n
	n, e := c.forgetFragments(now)
	return removed + n, errors.Join(err, e)
}

// forgetFragments removes expired fragment state.
func (c *Table) forgetFragments(now time.Duration) (removed int, err error) {
	const lasts = time.Duration(bpf.TimeoutTIMEOUT_FRAGMENTS) * time.Second
	var old []bpf.FragmentKey
	err = table.Read(c.fragments, func(k *bpf.FragmentKey, v *bpf.Fragment) {
		if now-time.Duration(v.Seen) >= lasts {
			old = append(old, *k)
		}
	})
	if err == nil {
		removed, err = table.Delete(c.fragments, old)
	}
	if err != nil {
		err = fmt.Errorf("forget entries of map %s: %w", bpf.MapFragments, err)
	}
	return removed, err
}

// expire removes the expired entries of one map.
func (c *Table) expire(m *ebpf.Map, now time.Duration, tally tally, pods podsInUse) (removed int, err error) {
	var over []bpf.Tuple
	var entries uint32
	readErr := table.Read(m, func(k *bpf.Tuple, v *bpf.NatEntry) {
		e := entry{*k, *v, m == c.pending}
		entries++
		ended, e2 := c.ended(e, now, e.slot() == c.slot)
		err = errors.Join(err, e2)
		tally.add(e)
		if ended {
			over = append(over, *k)
		} else {
			pods.see(e)
		}
	})
	if readErr != nil {
		return 0, fmt.Errorf("read connections: %w", readErr)
	}
	if m == c.entries {
		c.crowded = entries > m.MaxEntries()/2
	}
	for _, key := range over {
		n, e := c.removeEnded(m, key, now)
		removed += n
		err = errors.Join(err, e)
	}
	return removed, err
}

// ended reports whether an entry's connection is over. Looking up the reverse direction takes a system call: it is
// done only if this entry has expired or may have ended with the other, and for a few entries in turn (inspect), to
// find entries without a counterpart.
func (c *Table) ended(e entry, now time.Duration, inspect bool) (bool, error) {
	quiet := now - e.seen()
	rests := !c.crowded && e.flag(bpf.NatFlagNAT_TIME_WAIT)
	if quiet < shortest || rests && quiet < timeWait {
		return false, nil
	}
	if quiet < e.timeout(e.state(bpf.NatEntry{}), bpf.NatEntry{}) && e.value.Flags&flagsEnded == 0 && !inspect {
		return false, nil
	}
	back, there, err := c.other(e)
	if err != nil {
		return false, err
	}
	if !there && !e.dsr() && !e.pending {
		return true, nil
	}
	if there {
		quiet = min(quiet, now-time.Duration(back.Seen))
	}
	state := e.state(back)
	if c.crowded && state == conntrack.StateClosing && (e.value.Flags|back.Flags)&flagReset != 0 {
		state = conntrack.StateClosed
	}
	lasts := e.timeout(state, back)
	if rests {
		lasts = max(lasts, timeWait)
	}
	return quiet >= lasts, nil
}

// other looks up the reverse entry. It may be in either map while the connection becomes established.
func (c *Table) other(e entry) (back bpf.NatEntry, there bool, err error) {
	if e.dsr() {
		return back, false, nil
	}
	key := e.reversed()
	for _, m := range []*ebpf.Map{c.entries, c.pending} {
		err := m.Lookup(&key, &back)
		if err == nil {
			return back, true, nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return back, false, fmt.Errorf("read connection: %w", err)
		}
	}
	return bpf.NatEntry{}, false, nil
}

// removeEnded reads an entry again and removes it with its reverse entry if it is still expired: a packet may have
// arrived meanwhile.
func (c *Table) removeEnded(m *ebpf.Map, key bpf.Tuple, now time.Duration) (removed int, err error) {
	e := entry{key: key, pending: m == c.pending}
	err = m.Lookup(key, &e.value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil // removed with its reverse entry
	}
	if err != nil {
		return 0, fmt.Errorf("read connection: %w", err)
	}
	ended, err := c.ended(e, now, true)
	if err != nil || !ended {
		return 0, err
	}
	return c.remove(e)
}

// remove removes both entries of a connection from either map. The initiator's goes first, so that no packet is
// translated without a reverse entry.
func (c *Table) remove(e entry) (removed int, err error) {
	keys := []bpf.Tuple{e.key}
	if !e.dsr() {
		keys = append(keys, e.reversed())
		if !e.initiator() {
			slices.Reverse(keys)
		}
	}
	for _, key := range keys {
		for _, m := range []*ebpf.Map{c.pending, c.entries} {
			n, e := table.Delete(m, []bpf.Tuple{key})
			removed += n
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		err = fmt.Errorf("remove connection: %w", err)
	}
	return removed, err
}

// ForgetBackends removes connections to removed backends that nothing else would end: UDP, whose clients would keep
// sending, and unreplied ones. udp are the backends that served UDP: for others the established entries are not read.
// It returns how many entries it removed.
func (c *Table) ForgetBackends(gone, udp []netip.AddrPort) (removed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	backends := make(map[bpf.Backend]bool, len(gone))
	for _, b := range gone {
		backends[bpf.BackendOf(b)] = true
	}
	tables := []*ebpf.Map{c.pending}
	if len(udp) > 0 {
		tables = append(tables, c.entries)
	}
	return c.removeAll(tables, func(e entry) bool {
		to := bpf.Backend{Address: e.value.Destination, Port: e.value.DestinationPort}
		return e.initiator() && backends[to] && e.value.Service != 0 && (e.pending || e.key.Protocol == uint8(cluster.UDP))
	})
}

// removeAll removes the connections of these maps that have such an entry.
func (c *Table) removeAll(maps []*ebpf.Map, which func(entry) bool) (removed int, err error) {
	for _, m := range maps {
		var found []entry
		e := table.Read(m, func(k *bpf.Tuple, v *bpf.NatEntry) {
			if e := (entry{*k, *v, m == c.pending}); which(e) {
				found = append(found, e)
			}
		})
		if e != nil {
			err = errors.Join(err, fmt.Errorf("read connections: %w", e))
		}
		for _, e := range found {
			n, e := c.remove(e)
			removed += n
			err = errors.Join(err, e)
		}
	}
	return removed, err
}
