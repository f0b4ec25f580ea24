package nat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// ForgetPods removes the NAT state of addresses whose pods are deleted, so that a pod that reuses one inherits
// nothing: connections with the pod at either end, and its entry in nat_pods. It returns how many entries it removed;
// their slots are free.
func (c *Table) ForgetPods(gone []netip.Addr) (removed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	addresses := make(map[bpf.Address]bool, len(gone))
	keys := make([]bpf.Address, 0, len(gone))
	for _, a := range gone {
		addresses[bpf.AddressOf(a)] = true
		keys = append(keys, bpf.AddressOf(a))
	}
	removed, err = c.removeAll([]*ebpf.Map{c.entries, c.pending}, func(e entry) bool {
		return slices.ContainsFunc(e.addresses(), func(a bpf.Address) bool { return addresses[a] })
	})
	n, e := table.Delete(c.pods.m, keys)
	if e != nil {
		e = fmt.Errorf("take pods off map %s: %w", bpf.MapNatPods, e)
	}
	return removed + n, errors.Join(err, e)
}

// Addresses calls visit with the addresses of every entry, once per occurrence.
func (c *Table) Addresses(visit func(netip.Addr)) error {
	var err error
	for _, m := range []*ebpf.Map{c.entries, c.pending} {
		err = errors.Join(err, table.Read(m, func(k *bpf.Tuple, v *bpf.NatEntry) {
			for _, a := range (entry{key: *k, value: *v}).addresses() {
				visit(a.Addr())
			}
		}))
	}
	return errors.Join(err, table.Read(c.pods.m, func(k *bpf.Address, _ *uint64) { visit(k.Addr()) }))
}
