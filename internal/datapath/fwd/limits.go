package fwd

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Limit says how fast a pod may send.
type Limit struct {
	// Rate is in bytes/s, with link-layer headers.
	Rate uint64
	// Burst is how much the pod may catch up of time without packets.
	Burst time.Duration
	// Departs says that all uplinks hold packets until their departure time. Else packets beyond the rate are dropped.
	Departs bool
}

// Limits is the table of limits by the index of the host end. The agent is its only writer; the datapath keeps the time in its entries.
type Limits struct{ m *ebpf.Map }

// NewLimits returns the table on its map.
func NewLimits(m *bpf.Maps) Limits { return Limits{m.Limits} }

// All returns the table.
func (t Limits) All() (map[int]Limit, error) {
	all := map[int]Limit{}
	err := table.Read(t.m, func(k *uint32, v *bpf.Limit) {
		all[int(*k)] = Limit{Rate: v.Rate, Burst: time.Duration(v.Burst), Departs: v.Departs != 0}
	})
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return all, nil
}

// Set adds or replaces the limit of a host end. A limit that has not changed keeps its time.
func (t Limits) Set(ifindex int, l Limit) error {
	v := bpf.Limit{Rate: l.Rate, Burst: uint64(l.Burst)}
	if l.Departs {
		v.Departs = 1
	}
	var have bpf.Limit
	if err := t.m.Lookup(uint32(ifindex), &have); err == nil && have.Rate == v.Rate && have.Burst == v.Burst && have.Departs == v.Departs {
		return nil
	}
	if err := t.m.Put(uint32(ifindex), &v); err != nil {
		return fmt.Errorf("set limit of device %d: %w", ifindex, err)
	}
	return nil
}

// Delete removes the limit of a host end. A missing one is no error.
func (t Limits) Delete(ifindex int) error {
	if err := t.m.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete limit of device %d: %w", ifindex, err)
	}
	return nil
}

// Sync makes the table equal to want, writing only differences.
func (t Limits) Sync(want map[int]Limit) error {
	have, err := t.All()
	if err != nil {
		return err
	}
	set, del := table.Diff(have, want)
	for ifindex, l := range set {
		err = errors.Join(err, t.Set(ifindex, l))
	}
	for _, ifindex := range del {
		err = errors.Join(err, t.Delete(ifindex))
	}
	return err
}
