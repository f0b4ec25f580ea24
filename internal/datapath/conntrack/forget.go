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

// How a pod is forgotten. A program that visits every element takes 15 ns for each bucket of a table, empty or not: with the usual sizes some 10 ms for
// three walks. To read entries in batches takes 1 ns for a bucket that is empty, but 400 ns for an entry. So the tables are read as long as
// they have fewEntries at most; where they had more, the program does all for manyFor.
const (
	fewEntries = 8192
	manyFor    = time.Minute
)

// Forget removes every session that the address of a pod of this node is an end of, and what is charged to it: who gets the address next
// inherits nothing. Call it when the pod is gone, and before another one gets the address.
func (s *Table) Forget(pod netip.Addr) error {
	if s.forget == nil {
		return nil
	}
	if many := s.many.Load(); many == nil || time.Now().After(*many) {
		done, err := s.forgetOfFew(bpf.AddressOf(pod))
		if done && err == nil {
			return nil
		}
		if !done && err == nil {
			until := time.Now().Add(manyFor)
			s.many.Store(&until)
		}
		// What has failed here the program does, or says why it cannot.
	}
	if _, err := s.forget.Run(&ebpf.RunOptions{Context: bpf.FlushPodArgs{Pod: bpf.AddressOf(pod)}}); err != nil {
		return fmt.Errorf("forget sessions of %s: %w", pod, err)
	}
	return nil
}

// forgetOfFew does so by reading the tables. It returns false if they are too full for that.
func (s *Table) forgetOfFew(pod bpf.Address) (done bool, err error) {
	if err := s.flushIfOf(pod); err != nil {
		return false, err
	}
	// A batch misses nothing that is there all the time, as the kernel locks each bucket. But what somebody else was moving out of the young
	// sessions just now may come behind it: twice.
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

// flushIfOf moves the young sessions to the table of the others if one of them is the pod's: most pods that end have none, and those of others go
// on as they are.
func (s *Table) flushIfOf(pod bpf.Address) error {
	own := false
	err := table.Read(s.recent, func(_ *uint32, y *bpf.CtNewEntry) {
		own = own || y.Key.Source == pod || y.Key.Destination == pod
	})
	if err != nil {
		return fmt.Errorf("read young sessions: %w", err)
	}
	if !own {
		return nil
	}
	return s.Flush()
}

// forget removes what is charged to a pod. It returns false if there are too many slots to look at. Who has no share has no slot.
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
