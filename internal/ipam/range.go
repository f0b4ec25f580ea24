package ipam

import (
	"container/list"
	"math"
	"net/netip"
)

// rememberedReleases bounds how many released addresses a range keeps in order, and thereby its memory.
const rememberedReleases = 1 << 16

// addrRange is the state of one prefix. It never enumerates the prefix: fresh walks on from the last allocated
// address, and only used and recently released addresses are kept.
type addrRange struct {
	prefix      netip.Prefix
	first, last netip.Addr // the usable ones
	cursor      netip.Addr // the address allocated last; before the first one, the prefix's own
	used        map[netip.Addr]struct{}
	// released has the released addresses that are free, oldest in front.
	released *list.List
	elements map[netip.Addr]*list.Element
	// avoided are not allocated: something else on the node has them. They may be in use or released.
	avoided map[netip.Addr]struct{}
}

// newRange leaves out the prefix's first address (IPv4: the network, IPv6: the subnet-router anycast
// address, RFC 4291 §2.6.1) and IPv4's last one, the broadcast address.
func newRange(prefix netip.Prefix) *addrRange {
	r := &addrRange{
		prefix:   prefix,
		first:    prefix.Addr().Next(),
		last:     lastOf(prefix),
		cursor:   prefix.Addr(),
		used:     map[netip.Addr]struct{}{},
		released: list.New(),
		elements: map[netip.Addr]*list.Element{},
	}
	if prefix.Addr().Is4() {
		r.last = r.last.Prev()
	}
	return r
}

func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// has reports whether addr is usable.
func (r *addrRange) has(addr netip.Addr) bool {
	return r.prefix.Contains(addr) && addr.Compare(r.first) >= 0 && addr.Compare(r.last) <= 0
}

// capacity is the number of usable addresses, at most math.MaxInt64.
func (r *addrRange) capacity() int64 {
	bits := r.prefix.Addr().BitLen() - r.prefix.Bits()
	if bits >= 63 {
		return math.MaxInt64
	}
	reserved := int64(1)
	if r.prefix.Addr().Is4() {
		reserved = 2
	}
	return max(0, int64(1)<<bits-reserved)
}

func (r *addrRange) free() int64 {
	if r.capacity() == math.MaxInt64 {
		return math.MaxInt64
	}
	return r.capacity() - int64(len(r.used)) - int64(r.withheld(false))
}

// avoid sets the addresses to avoid to those of addrs in the range.
func (r *addrRange) avoid(addrs []netip.Addr) {
	r.avoided = map[netip.Addr]struct{}{}
	for _, addr := range addrs {
		if r.has(addr) {
			r.avoided[addr] = struct{}{}
		}
	}
}

// withheld is the number of avoided addresses that are not in use; with onlyFresh without those recently released.
func (r *addrRange) withheld(onlyFresh bool) (n int) {
	for addr := range r.avoided {
		_, used := r.used[addr]
		_, released := r.elements[addr]
		if !used && !(released && onlyFresh) {
			n++
		}
	}
	return n
}

// fresh gives the next address in turn that is not in use, recently released or avoided.
func (r *addrRange) fresh() (netip.Addr, bool) {
	if int64(len(r.used)+r.released.Len()+r.withheld(true)) >= r.capacity() {
		return netip.Addr{}, false
	}
	for addr := r.after(r.cursor); ; addr = r.after(addr) {
		_, used := r.used[addr]
		_, released := r.elements[addr]
		_, avoided := r.avoided[addr]
		if !used && !released && !avoided {
			return addr, true
		}
	}
}

// after is the usable address that follows addr, the first one after the last.
func (r *addrRange) after(addr netip.Addr) netip.Addr {
	if next := addr.Next(); r.has(next) {
		return next
	}
	return r.first
}

func (r *addrRange) oldestReleased() (netip.Addr, bool) {
	for e := r.released.Front(); e != nil; e = e.Next() {
		addr := e.Value.(netip.Addr)
		if _, avoided := r.avoided[addr]; !avoided {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// take marks addr as in use and moves the turn to it; addresses outside of the range are ignored.
func (r *addrRange) take(addr netip.Addr) {
	if !r.has(addr) {
		return
	}
	r.used[addr] = struct{}{}
	if e, lately := r.elements[addr]; lately {
		r.forget(e) // the turn of fresh addresses is unchanged
		return
	}
	r.cursor = addr
}

func (r *addrRange) release(addr netip.Addr) {
	if _, used := r.used[addr]; !used {
		return
	}
	delete(r.used, addr)
	r.elements[addr] = r.released.PushBack(addr)
	if r.released.Len() > rememberedReleases {
		r.forget(r.released.Front())
	}
}

func (r *addrRange) forget(e *list.Element) {
	delete(r.elements, e.Value.(netip.Addr))
	r.released.Remove(e)
}
