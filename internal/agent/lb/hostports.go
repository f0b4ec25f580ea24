package lb

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/service"
)

// HostPorts are the host ports of this node's pods, older pods first.
func HostPorts(endpoints iter.Seq[agentapi.Endpoint]) []service.HostPort {
	var mapped []agentapi.Endpoint
	for e := range endpoints {
		if len(e.PortMappings) > 0 {
			mapped = append(mapped, e)
		}
	}
	slices.SortFunc(mapped, func(x, y agentapi.Endpoint) int {
		return cmp.Or(x.Added.Compare(y.Added), cmp.Compare(x.HostDevice, y.HostDevice))
	})
	var all []service.HostPort
	for _, e := range mapped {
		for _, m := range e.PortMappings {
			h := service.HostPort{Pod: PodKey(e), Protocol: protocolOf(m.Protocol), Number: m.HostPort, Address: m.HostIP}
			for _, addr := range e.Addresses {
				h.Backends = append(h.Backends, netip.AddrPortFrom(addr, m.ContainerPort))
			}
			all = append(all, h)
		}
	}
	return all
}

// PodKey identifies the owner of host ports: the pod, or outside Kubernetes the container.
func PodKey(e agentapi.Endpoint) cluster.Key {
	if e.Pod.Name != "" {
		return cluster.Key{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
	}
	return cluster.Key{Name: e.PodName()}
}

func protocolOf(name string) cluster.Protocol {
	for _, p := range []cluster.Protocol{cluster.UDP, cluster.SCTP} {
		if p.String() == name {
			return p
		}
	}
	return cluster.TCP
}

// CheckPorts fails with agentapi.CodePortTaken if another pod has a port that a new pod requests.
func CheckPorts(node string, endpoints iter.Seq[agentapi.Endpoint], added agentapi.Endpoint) error {
	asking := PodKey(added)
	for e := range endpoints {
		if PodKey(e) == asking {
			continue // the same pod, made anew before the old endpoint is removed
		}
		for _, has := range e.PortMappings {
			for _, wants := range added.PortMappings {
				if has.HostPort == wants.HostPort && has.Protocol == wants.Protocol && overlap(has.HostIP, wants.HostIP) {
					return agentapi.Errorf(agentapi.CodePortTaken, "port %d/%s of node %s belongs to pod %s", wants.HostPort, wants.Protocol, node, e.PodName())
				}
			}
		}
	}
	return nil
}

// overlap reports whether two hostIPs have an address in common.
func overlap(a, b netip.Addr) bool {
	switch {
	case !a.IsValid() || !b.IsValid() || a == b:
		return true
	case a.IsUnspecified() || b.IsUnspecified():
		return a.Is4() == b.Is4()
	}
	return false
}

// OpenPorts makes a pass for the ports of a new pod, after UpdateHostPorts. Errors about ports of other pods and
// Services do not fail it.
func (s *Services) OpenPorts(e agentapi.Endpoint) error {
	if err := s.Pass(); err != nil && !onlyOfOthers(err, PodKey(e)) {
		return fmt.Errorf("open ports of pod %s: %w", e.PodName(), err)
	}
	return nil
}

// onlyOfOthers reports whether an error of the table is about ports of others than this pod.
func onlyOfOthers(err error, pod cluster.Key) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyOfOthers(err, pod) })
	}
	isOfPod := func(name service.PortName) bool { return name.IsHostPort() && name.Service == pod }
	var of *lb.PortError
	var more *lb.MorePortsError
	switch {
	case errors.As(err, &of):
		return !isOfPod(of.Port)
	case errors.As(err, &more):
		return !slices.ContainsFunc(more.Ports, isOfPod)
	}
	return false
}
