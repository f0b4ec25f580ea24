package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// A program that visits every element takes 15 ns per bucket, empty or not: some 10 ms for three walks of tables of
// the usual sizes. A batch read takes 1 ns per empty bucket, but 400 ns per entry. So Forget reads the tables while
// they have at most fewEntries. If they have more, it runs the program for manyFor.
const (
	fewEntries = 8192
	manyFor    = time.Minute
)

// Forget removes every conntrack entry of the address of a pod on this node, and the pod's share, so that a pod that
// reuses the address inherits nothing. Call it when the pod is deleted and before its address is reused.
func (s *Table) Forget(pod netip.Addr) error {
	if s.forget == nil {
		return nil
	}
	if many := s.many.Load(); many == nil || time.Now().After(*many) {
		done, err := s.forgetFew(bpf.AddressOf(pod))
		if done && err == nil {
			return nil
		}
		if !done && err == nil {
			until := time.Now().Add(manyFor)
			s.many.Store(&until)
		}
		// If reading fails, the program does the work or returns an error.
	}
	if _, err := s.forget.Run(&ebpf.RunOptions{Context: bpf.FlushPodArgs{Pod: bpf.AddressOf(pod)}}); err != nil {
		return fmt.Errorf("remove conntrack entries of %s: %w", pod, err)
	}
	return nil
}

// forgetFew does so by reading the tables. It returns false if they have too many entries.
func (s *Table) forgetFew(pod bpf.Address) (done bool, err error) {
	if err := s.flushIfOf(pod); err != nil {
		return false, err
	}
	// A batch read misses no entry that exists throughout, since the kernel locks each bucket. But a CPU that is
	// moving an entry out of `ct_new` may add it behind the cursor: read twice.
	for range 2 {
		var keys []bpf.Tuple
		all, err := table.ReadUpTo(s.m, fewEntries, func(k *bpf.Tuple, _ *bpf.CtEntry) {
			if k.Source == pod || k.Destination == pod {
				keys = append(keys, *k)
			}
		})
		if !all || err != nil {
			return false, err
		}
		if _, err := table.Delete(s.m, keys); err != nil {
			return false, err
		}
	}
	return s.shares.forget(pod)
}

// flushIfOf flushes `ct_new` if it has an entry of the pod. Most pods that end have none, and the others' entries
// stay.
func (s *Table) flushIfOf(pod bpf.Address) error {
	own := false
	err := table.Read(s.recent, func(_ *uint32, y *bpf.CtNewEntry) {
		own = own || y.Key.Source == pod || y.Key.Destination == pod
	})
	if err != nil {
		return fmt.Errorf("read new conntrack entries: %w", err)
	}
	if !own {
		return nil
	}
	return s.Flush()
}

// forget removes the share and the slots of a pod. It returns false if there are too many slots to read. A pod
// without a share has no slots.
func (s shares) forget(pod bpf.Address) (done bool, err error) {
	if err := s.shares.Lookup(pod, &bpf.CtShare{}); errors.Is(err, ebpf.ErrKeyNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	var slots []bpf.CtSlot
	all, err := table.ReadUpTo(s.slots, fewEntries, func(at *bpf.CtSlot, _ *bpf.Tuple) {
		if at.Pod == pod {
			slots = append(slots, *at)
		}
	})
	if !all || err != nil {
		return false, err
	}
	if _, err := table.Delete(s.slots, slots); err != nil {
		return false, err
	}
	_, err = table.Delete(s.shares, []bpf.Address{pod})
	return err == nil, err
}
