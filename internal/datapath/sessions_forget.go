package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// How a pod is forgotten. A program that visits every element takes 15 ns for each bucket of a table, empty or not: with the usual sizes some 10 ms for
// three walks. To read entries in batches takes 1 ns for a bucket that is empty, but 400 ns for an entry. So the tables are read as long as
// they have fewSessions at most; where they had more, the program does all for manyFor.
const (
	fewSessions = 8192
	manyFor     = time.Minute
)

// Forget removes every session that the address of a pod of this node is an end of, and what is charged to it: who gets the address next
// inherits nothing. Call it when the pod is gone, and before another one gets the address.
func (s *Sessions) Forget(pod netip.Addr) error {
	if s.forget == nil {
		return nil
	}
	if many := s.many.Load(); many == nil || time.Now().After(*many) {
		done, err := s.forgetOfFew(addressOf(pod))
		if done && err == nil {
			return nil
		}
		if !done && err == nil {
			until := time.Now().Add(manyFor)
			s.many.Store(&until)
		}
		// What has failed here the program does, or says why it cannot.
	}
	if _, err := s.forget.Run(&ebpf.RunOptions{Context: bpfFlushPodArgs{Pod: addressOf(pod)}}); err != nil {
		return fmt.Errorf("forget sessions of %s: %w", pod, err)
	}
	return nil
}

// forgetOfFew does so by reading the tables. It returns false if they are too full for that.
func (s *Sessions) forgetOfFew(pod bpfAddress) (done bool, err error) {
	if err := s.settleYoungOf(pod); err != nil {
		return false, err
	}
	// A batch misses nothing that is there all the time, as the kernel locks each bucket. But what somebody else was moving out of the young
	// sessions just now may come behind it: twice.
	for range 2 {
		var keys []bpfTuple
		all, err := readUpTo(s.m, fewSessions, func(k *bpfTuple, _ *bpfCtEntry) {
			if k.Source == pod || k.Destination == pod {
				keys = append(keys, *k)
			}
		})
		if !all || err != nil {
			return false, err
		}
		if _, err := deleteAll(s.m, keys); err != nil {
			return false, err
		}
	}
	return s.shares.forget(pod)
}

// settleYoungOf moves the young sessions to the table of the others if one of them is the pod's: most pods that end have none, and those of others go
// on as they are.
func (s *Sessions) settleYoungOf(pod bpfAddress) error {
	own := false
	err := readAll(s.young, func(_ *uint32, y *bpfCtNewEntry) {
		own = own || y.Key.Source == pod || y.Key.Destination == pod
	})
	if err != nil {
		return fmt.Errorf("read young sessions: %w", err)
	}
	if !own {
		return nil
	}
	return s.settleYoung()
}

// forget removes what is charged to a pod. It returns false if there are too many slots to look at. Who has no share has no slot.
func (s sessionShares) forget(pod bpfAddress) (done bool, err error) {
	if err := s.shares.Lookup(pod, &bpfCtShare{}); errors.Is(err, ebpf.ErrKeyNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	var slots []bpfCtSlot
	all, err := readUpTo(s.slots, fewSessions, func(at *bpfCtSlot, _ *bpfTuple) {
		if at.Pod == pod {
			slots = append(slots, *at)
		}
	})
	if !all || err != nil {
		return false, err
	}
	if _, err := deleteAll(s.slots, slots); err != nil {
		return false, err
	}
	_, err = deleteAll(s.shares, []bpfAddress{pod})
	return err == nil, err
}
