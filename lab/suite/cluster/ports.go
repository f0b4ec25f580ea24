package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/worker"
	"github.com/beeline-cni/beeline/lab/workload"
)

// ports are those that the servers of a plan need. Tools tell each other port numbers, so a Service must not change
// them: a pod behind one listens on the numbers that the cluster gives out as NodePorts. As few as possible, because
// every port of a Service adds a rule to the path of others.
type ports []port

type port struct {
	// udp says that UDP needs it as well as TCP.
	udp bool
	// assign gives a number its meaning.
	assign func(e *worker.End, number int)
}

// leastData and leastHTTP are how many ports the connections of netperf and of wrk take turns on: a pair of ports rests
// for a minute after each.
const leastData, leastHTTP = 4, 4

func newPorts(cells []round.Cell) ports {
	count, udp := map[string]int{}, map[string]bool{}
	for _, c := range cells {
		info := c.Workload.Info()
		least := map[string]int{"netperf": max(leastData, c.Procs), "wrk": leastHTTP, "iperf3": c.Procs}[info.Tool]
		count[info.Tool] = max(count[info.Tool], least, 1)
		udp[info.Tool] = udp[info.Tool] || strings.HasPrefix(info.Name, "udp")
	}
	list := ports{{true, func(e *worker.End, number int) { e.Control = number }}}
	add := func(n int, udp bool, assign func(p *workload.Ports, number int)) {
		for range n {
			list = append(list, port{udp, func(e *worker.End, number int) { assign(&e.Ports, number) }})
		}
	}
	add(min(1, count["netperf"]), false, func(p *workload.Ports, number int) { p.Netperf = number })
	add(count["sockperf"], false, func(p *workload.Ports, number int) { p.Sockperf = number })
	add(count["redis-benchmark"], false, func(p *workload.Ports, number int) { p.Redis = number })
	add(count["wrk"], false, func(p *workload.Ports, number int) { p.HTTP = append(p.HTTP, number) })
	add(count["iperf3"], udp["iperf3"], func(p *workload.Ports, number int) { p.Iperf = append(p.Iperf, number) })
	add(count["netperf"], udp["netperf"], func(p *workload.Ports, number int) { p.Data = append(p.Data, number) })
	return list
}

// assign returns the numbers their meaning.
func (p ports) assign(numbers []int) (e worker.End) {
	for i, number := range numbers {
		p[i].assign(&e, number)
	}
	return e
}

// request are a Service's ports without numbers that mean anything: the cluster adds NodePorts.
func (p ports) request() []corev1.ServicePort {
	numbers := workload.Consecutive(1, len(p))
	return p.service(numbers, false)
}

// service are a Service's ports with the same numbers everywhere.
func (p ports) service(numbers []int, fixed bool) []corev1.ServicePort {
	var list []corev1.ServicePort
	for i, needed := range p {
		protocols := []corev1.Protocol{corev1.ProtocolTCP}
		if needed.udp {
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
	numbers := make([]int, len(p))
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
