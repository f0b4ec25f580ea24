package nat

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// natPods is the map of pods whose packets need a lookup in `nat` before the fast path.
type natPods struct{ m *ebpf.Map }

// podsInUse are the listed pods, and whether a NAT entry still needs them.
type podsInUse map[bpf.Address]*podInUse

type podInUse struct {
	began time.Duration
	used  bool
}

func (t natPods) read() (podsInUse, error) {
	pods := podsInUse{}
	err := table.Read(t.m, func(k *bpf.Address, began *uint64) { pods[*k] = &podInUse{began: time.Duration(*began)} })
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapNatPods, err)
	}
	return pods, nil
}

// see marks the pods of an entry as in use.
func (p podsInUse) see(e entry) {
	if len(p) == 0 {
		return
	}
	for _, a := range e.addresses() {
		if pod := p[a]; pod != nil {
			pod.used = true
		}
	}
}

// settling is the minimum time a pod stays listed: it is listed before its NAT entry is created.
const settling = 5 * time.Second

// forgetPods removes the pods without NAT entries from the list. An entry created meanwhile relies on the pod being
// listed, so the maps are read once more and pods that are needed after all are listed again.
func (c *Table) forgetPods(pods podsInUse, now time.Duration) (removed int, err error) {
	forgotten := podsInUse{}
	for a, pod := range pods {
		if pod.used || now-pod.began < settling {
			continue
		}
		n, e := table.Delete(c.pods.m, []bpf.Address{a})
		removed += n
		err = errors.Join(err, e)
		forgotten[a] = &podInUse{began: pod.began}
	}
	if len(forgotten) == 0 {
		return 0, nil
	}
	for _, m := range []*ebpf.Map{c.entries, c.pending} {
		err = errors.Join(err, table.Read(m, func(k *bpf.Tuple, v *bpf.NatEntry) { forgotten.see(entry{key: *k, value: *v}) }))
	}
	for a, pod := range forgotten {
		if pod.used {
			err = errors.Join(err, c.pods.m.Put(a, uint64(now)))
			removed--
		}
	}
	if err != nil {
		err = fmt.Errorf("take pods off map %s: %w", bpf.MapNatPods, err)
	}
	return removed, errors.Join(err, c.generation.Advance())
}
