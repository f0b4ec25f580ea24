package nodeport

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// The ports of the two Services. Tools over TCP tell each other port numbers, so theirs are the same on nodes and in
// the pod.
const (
	udpNodePort = 30900
	udpPort     = 7777
	firstTCP    = 30910
)

// otherServices are there beside the two, as in a small cluster.
const otherServices = 50

// tcpPorts are those of the servers; netperf's are for its control connection and, in turn, for what it measures. All
// are reserved where clients are (endpointSysctls).
func tcpPorts() workload.Ports {
	return workload.Ports{Netperf: firstTCP, Redis: firstTCP + 1, Data: workload.Consecutive(firstTCP+2, 8), HTTP: workload.Consecutive(firstTCP+10, workload.HTTPPorts)}
}

// objects are the Services: of the backend at an address of a node's pod over UDP and over TCP, and others, all of the
// address's family.
func objects(nodes []*testbed.Node, node string, backend netip.Addr) []runtime.Object {
	ports := tcpPorts()
	tcp := slices.Concat([]int{ports.Netperf, ports.Redis}, ports.Data, ports.HTTP)
	all := []services.Service{
		{Name: "udp", Address: services.TargetAddress(1), Protocol: corev1.ProtocolUDP, Ports: []int{udpPort}, NodePorts: []int{udpNodePort}},
		{Name: "tcp", Address: services.TargetAddress(0), Ports: tcp, NodePorts: tcp},
	}
	for i := range otherServices {
		all = append(all, services.Filler(i, 2, nodes))
	}
	var list []runtime.Object
	for _, s := range all {
		if backend.Is6() {
			s = overIPv6(s)
		}
		if len(s.NodePorts) > 0 {
			s.Backends = []services.Backend{{Address: backend, Node: node}}
		}
		list = append(list, s.Objects()...)
	}
	return list
}

// overIPv6 returns a Service of IPv4 and its backends addresses of IPv6 that end with theirs.
func overIPv6(s services.Service) services.Service {
	six := func(a netip.Addr) netip.Addr {
		b := a.As16()
		copy(b[:12], []byte{0xfd, 0x96, 11: 0})
		return netip.AddrFrom16(b)
	}
	s.Address = six(s.Address)
	for i := range s.Backends {
		s.Backends[i].Address = six(s.Backends[i].Address)
	}
	return s
}
