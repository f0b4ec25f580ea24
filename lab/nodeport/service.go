package nodeport

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/topology"
	"github.com/beeline-cni/beeline/lab/workload"
)

// The ports of the two Services. Tools over TCP tell each other port numbers, so theirs are the same on nodes and in the pod.
const (
	udpNodePort = 30900
	udpPort     = 7777
	firstTCP    = 30910
)

// otherServices are there beside the two, as in a small cluster.
const otherServices = 50

// tcpPorts are those of the servers; netperf's are for its control connection and, in turn, for what it measures.
func tcpPorts() workload.Ports {
	return workload.Ports{Netperf: firstTCP, Redis: firstTCP + 1, HTTP: firstTCP + 2, Data: workload.Consecutive(firstTCP+3, 8)}
}

// objects are the Services: of the backend over UDP and over TCP, and others.
func objects(nodes []*topology.Node, backend *topology.Pod) []runtime.Object {
	behind := []services.Backend{{Address: backend.Addresses[0], Node: backend.Node}}
	ports := tcpPorts()
	tcp := append([]int{ports.Netperf, ports.Redis, ports.HTTP}, ports.Data...)
	udp := services.Service{Name: "udp", Address: services.TargetAddress(1), Ports: []int{udpPort}, NodePorts: []int{udpNodePort}, Backends: behind}
	return append(overUDP(udp.Objects()), services.Fill(otherServices+1, 2, nodes, services.Service{
		Name: "tcp", Address: services.TargetAddress(0), Ports: tcp, NodePorts: tcp, Backends: behind,
	})...)
}

// overUDP changes the protocol of all ports.
func overUDP(objects []runtime.Object) []runtime.Object {
	udp := corev1.ProtocolUDP
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			for i := range o.Spec.Ports {
				o.Spec.Ports[i].Protocol = udp
			}
		case *discoveryv1.EndpointSlice:
			for i := range o.Ports {
				o.Ports[i].Protocol = &udp
			}
		}
	}
	return objects
}
