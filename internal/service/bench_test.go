package service

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// large is 10,000 Services with ten endpoints each, half of them with a NodePort.
func large() *cluster.Snapshot {
	snapshot := &cluster.Snapshot{Nodes: []cluster.Node{{Name: "n1", Zone: "z1"}}}
	var endpointSlices []*cluster.EndpointSlice
	for i := range 10_000 {
		s := simple(fmt.Sprintf("service-%05d", i), func(s *cluster.Service) {
			s.ClusterIPs = []netip.Addr{number(10<<24 | 96<<16 | uint32(i))}
			if i%2 == 0 {
				s.Ports[0].NodePort = uint16(20000 + i)
			}
		})
		snapshot.Services = append(snapshot.Services, s)
		endpointSlices = append(endpointSlices, largeSlice(i, 10))
	}
	snapshot.EndpointSlices = cluster.ListOf(endpointSlices...)
	return snapshot
}

func largeSlice(i, endpoints int) *cluster.EndpointSlice {
	of := slice(fmt.Sprintf("service-%05d", i), fmt.Sprintf("service-%05d-x", i))
	for j := range endpoints {
		of.Endpoints = append(of.Endpoints, cluster.Endpoint{Address: number(10<<24 | 128<<16 | uint32(i*10+j)), Ready: true, Serving: true, Node: "n2"})
	}
	return of
}

func number(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// A new agent in a large cluster.
func BenchmarkFull(b *testing.B) {
	snapshot := large()
	b.ReportAllocs()
	for b.Loop() {
		NewTranslator(n1()).Translate(snapshot, nil)
	}
}

// The memory of a Translator for a large cluster, beyond the objects themselves.
func BenchmarkMemory(b *testing.B) {
	snapshot := large()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		tr := NewTranslator(n1())
		tr.Translate(snapshot, nil)
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		runtime.KeepAlive(tr)
	}
}

// One of 10,000 Services gets or loses an endpoint.
func BenchmarkOneChange(b *testing.B) {
	snapshot := large()
	tr := NewTranslator(n1())
	tr.Translate(snapshot, nil)
	lists := [2]*cluster.Snapshot{snapshot}
	other := *snapshot
	changed := largeSlice(5000, 9)
	other.EndpointSlices = snapshot.EndpointSlices.With(map[cluster.Key]*cluster.EndpointSlice{changed.Key(): changed})
	lists[1] = &other
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		if changes := tr.Translate(lists[i%2], nil); len(changes.Set) != 1 {
			b.Fatalf("%d ports have changed", len(changes.Set))
		}
	}
}

// A snapshot without a changed Service.
func BenchmarkNothing(b *testing.B) {
	snapshot := large()
	tr := NewTranslator(n1())
	tr.Translate(snapshot, nil)
	b.ReportAllocs()
	for b.Loop() {
		tr.Translate(snapshot, nil)
	}
}
