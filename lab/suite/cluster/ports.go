package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/workload"
)

// ports says which ports the servers of a plan need. Tools tell each other port numbers, so a Service must not change
// them: a pod behind one listens on the numbers that the cluster gives out as NodePorts. As few as possible, because
// every port of a Service adds a rule to the path of others.
type ports struct {
	netperf, sockperf bool
	redis             bool
	http, iperf, data int
	dataUDP, iperfUDP bool
}

// leastData and leastHTTP are how many ports the connections of netperf and of wrk take turns on: a pair of ports rests
// for a minute after each.
const leastData, leastHTTP = 4, 4

func newPorts(cells []round.Cell) ports {
	var p ports
	for _, c := range cells {
		info := c.Workload.Info()
		udp := strings.HasPrefix(info.Name, "udp")
		switch info.Tool {
		case "netperf":
			p.netperf, p.data, p.dataUDP = true, max(leastData, p.data, c.Procs), p.dataUDP || udp
		case "sockperf":
			p.sockperf = true
		case "redis-benchmark":
			p.redis = true
		case "wrk":
			p.http = leastHTTP
		case "iperf3":
			p.iperf, p.iperfUDP = max(p.iperf, c.Procs), p.iperfUDP || udp
		}
	}
	return p
}

// udp says of each port, in the order of assign, whether UDP needs it as well as TCP.
func (p ports) udp() []bool {
	list := []bool{true} // the workers' own: see package worker
	if p.netperf {
		list = append(list, false)
	}
	for _, tool := range []bool{p.sockperf, p.redis} {
		if tool {
			list = append(list, false)
		}
	}
	for range p.http {
		list = append(list, false)
	}
	for range p.iperf {
		list = append(list, p.iperfUDP)
	}
	for range p.data {
		list = append(list, p.dataUDP)
	}
	return list
}

func (p ports) count() int { return len(p.udp()) }

// assign returns the numbers their meaning.
func (p ports) assign(numbers []int) (control int, tools workload.Ports) {
	next := func() int {
		n := numbers[0]
		numbers = numbers[1:]
		return n
	}
	control = next()
	if p.netperf {
		tools.Netperf = next()
	}
	if p.sockperf {
		tools.Sockperf = next()
	}
	if p.redis {
		tools.Redis = next()
	}
	tools.HTTP, numbers = numbers[:p.http:p.http], numbers[p.http:]
	tools.Iperf, tools.Data = numbers[:p.iperf:p.iperf], numbers[p.iperf:]
	return control, tools
}

// request are a Service's ports without numbers that mean anything: the cluster adds NodePorts.
func (p ports) request() []corev1.ServicePort {
	numbers := workload.Consecutive(1, p.count())
	return p.service(numbers, false)
}

// service are a Service's ports with the same numbers everywhere.
func (p ports) service(numbers []int, fixed bool) []corev1.ServicePort {
	var list []corev1.ServicePort
	for i, udp := range p.udp() {
		protocols := []corev1.Protocol{corev1.ProtocolTCP}
		if udp {
			protocols = append(protocols, corev1.ProtocolUDP)
		}
		for _, protocol := range protocols {
			port := corev1.ServicePort{
				Name:     fmt.Sprintf("p%d-%s", i, strings.ToLower(string(protocol))),
				Protocol: protocol, Port: int32(numbers[i]), TargetPort: intstr.FromInt32(int32(numbers[i])),
			}
			if fixed {
				port.NodePort = int32(numbers[i])
			}
			list = append(list, port)
		}
	}
	return list
}

// given reads the numbers that the cluster gave out. Both protocols of a port get the same one.
func (p ports) given(list []corev1.ServicePort) ([]int, error) {
	numbers := make([]int, p.count())
	for _, port := range list {
		i := int(port.Port) - 1
		if i < 0 || i >= len(numbers) || port.NodePort == 0 {
			return nil, fmt.Errorf("the cluster gave no NodePort to port %d of a service", port.Port)
		}
		if n := int(port.NodePort); numbers[i] != 0 && numbers[i] != n {
			return nil, fmt.Errorf("the cluster gave different NodePorts to TCP and UDP of one port: %d and %d", numbers[i], n)
		}
		numbers[i] = int(port.NodePort)
	}
	return numbers, nil
}
