package services

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// The address ranges of a lab's Services. Backends of the Services that only fill the tables are outside of all pod
// ranges: nothing is ever sent to them.
var (
	targetRange  = netip.MustParseAddr("10.96.0.0")
	fillerRange  = netip.MustParseAddr("10.97.0.0")
	changedRange = netip.MustParseAddr("10.98.0.0")
	noPods       = netip.MustParseAddr("10.128.0.0")
)

// FillerPort is the port of the Services that only fill the tables.
const FillerPort = 8080

// nth is the address n after the first of a range.
func nth(first netip.Addr, n int) netip.Addr {
	a := first.As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	return netip.AddrFrom4(a)
}

// TargetAddress and ChangedAddress are the ClusterIPs of the Services that traffic goes to, counted from 0: those that
// are there from the beginning, and those that come while the bench watches.
func TargetAddress(i int) netip.Addr  { return nth(targetRange, i+1) }
func ChangedAddress(i int) netip.Addr { return nth(changedRange, i+1) }

// FillerAddress is the ClusterIP of Filler i.
func FillerAddress(i int) netip.Addr { return nth(fillerRange, i+1) }

// Filler is the Service number i (from 0) of those that are only there, with so many backends of its own on the nodes.
func Filler(i, backends int, nodes []*testbed.Node) Service {
	s := Service{Name: fmt.Sprintf("filler-%05d", i), Address: FillerAddress(i), Ports: []int{FillerPort}}
	for j := range backends {
		s.Backends = append(s.Backends, Backend{nth(noPods, i*backends+j+1), nodes[j%len(nodes)].Name})
	}
	return s
}

// Fill are the objects of so many Services that are only there.
func Fill(total, backends int, nodes []*testbed.Node) (objects []runtime.Object) {
	for i := range total {
		objects = append(objects, Filler(i, backends, nodes).Objects()...)
	}
	return objects
}
