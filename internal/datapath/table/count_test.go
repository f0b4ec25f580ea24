package table

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// TestCountEntries counts each map type, and a full map of the largest default size within a time that suits a
// metrics scrape.
func TestCountEntries(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	const entries = 5000
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUHash, ebpf.LPMTrie} {
		t.Run(kind.String(), func(t *testing.T) {
			spec := &ebpf.MapSpec{Type: kind, KeySize: 8, ValueSize: 24, MaxEntries: 1 << 18}
			if kind == ebpf.LPMTrie {
				spec.Flags = unix.BPF_F_NO_PREALLOC
			}
			if kind == ebpf.PerCPUHash {
				spec.MaxEntries = entries
			}
			m, err := ebpf.NewMap(spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var value any = make([]byte, 24)
			if kind == ebpf.PerCPUHash {
				value = make([][24]byte, ebpf.MustPossibleCPU())
			}
			fill := func(from, to uint32) {
				for i := from; i < to; i++ {
					key := binary.BigEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 32), i)
					if err := m.Put(key, value); err != nil {
						t.Fatal(err)
					}
				}
			}
			check := func(want int) {
				t.Helper()
				begin := time.Now()
				got, err := countInBatches(m)
				took := time.Since(begin)
				t.Logf("%d entries in %s", got, took)
				if err != nil || got != want {
					t.Errorf("counted %d, %v; want %d", got, err, want)
				}
				if keys, err := countByKeys(m); err != nil || keys != want {
					t.Errorf("counted %d by keys, %v; want %d", keys, err, want)
				}
				if limit := 2 * time.Second; took > limit {
					t.Errorf("counting %d entries took %s, more than %s", got, took, limit)
				}
			}
			check(0)
			fill(0, entries)
			check(entries)
			if kind == ebpf.Hash {
				fill(entries, 1<<18)
				check(1 << 18)
			}
		})
	}
}
