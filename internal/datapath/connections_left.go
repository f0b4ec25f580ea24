package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// ForgetPods removes what translation remembers of addresses whose pods are gone, so that a pod that gets one of them inherits nothing:
// connections that the pod took part in, and that its packets are looked up. It says how many entries it removed. Their slots are free by that.
func (c *Connections) ForgetPods(gone []netip.Addr) (removed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	addresses := make(map[bpfAddress]bool, len(gone))
	keys := make([]bpfAddress, 0, len(gone))
	for _, a := range gone {
		addresses[addressOf(a)] = true
		keys = append(keys, addressOf(a))
	}
	for _, m := range []*ebpf.Map{c.connections, c.openings} {
		var found []entry
		e := readAll(m, func(k *bpfTuple, v *bpfNatEntry) {
			if addresses[k.Source] || addresses[k.Destination] || addresses[v.Source] || addresses[v.Destination] {
				found = append(found, entry{*k, *v, m == c.openings})
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
	n, e := deleteAll(c.pods.m, keys)
	if e != nil {
		e = fmt.Errorf("take pods off map %s: %w", bpfMapNatPods, e)
	}
	return removed + n, errors.Join(err, e)
}

// addresses hands the addresses of every entry to visit, each as often as it occurs.
func (c *Connections) addresses(visit func(netip.Addr)) error {
	var err error
	for _, m := range []*ebpf.Map{c.connections, c.openings} {
		err = errors.Join(err, readAll(m, func(k *bpfTuple, v *bpfNatEntry) {
			for _, a := range []bpfAddress{k.Source, k.Destination, v.Source, v.Destination} {
				visit(a.addr())
			}
		}))
	}
	return errors.Join(err, readAll(c.pods.m, func(k *bpfAddress, _ *uint64) { visit(k.addr()) }))
}
