package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
)

// chooseNodes returns the nodes of the client and of the server: those that were named, or the first by name that take
// all pods. They are the same node where there is no other one.
func chooseNodes(nodes []corev1.Node, client, server string) (c, s corev1.Node, err error) {
	var free []corev1.Node
	var refused []string
	for _, n := range slices.SortedFunc(slices.Values(nodes), func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) }) {
		if why := unfit(n); why != "" {
			refused = append(refused, n.Name+" "+why)
			continue
		}
		free = append(free, n)
	}
	pick := func(name, other string) (corev1.Node, error) {
		if name != "" {
			return chosenNode(nodes, name)
		}
		for _, n := range free {
			if n.Name != other {
				return n, nil
			}
		}
		if other != "" {
			return chosenNode(nodes, other)
		}
		return corev1.Node{}, fmt.Errorf("no node takes the bench's pods: %s; --client-node and --server-node choose nodes all the same",
			cmp.Or(strings.Join(refused, ", "), "the cluster has none"))
	}
	if c, err = pick(client, server); err == nil {
		s, err = pick(server, c.Name)
	}
	return c, s, err
}

func chosenNode(nodes []corev1.Node, name string) (corev1.Node, error) {
	var list []string
	for _, n := range nodes {
		if n.Name == name {
			if !ready(n) {
				return n, fmt.Errorf("node %s is not ready", name)
			}
			return n, nil
		}
		list = append(list, n.Name)
	}
	slices.Sort(list)
	return corev1.Node{}, fmt.Errorf("no node %q; there are: %s", name, strings.Join(list, ", "))
}

func ready(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// unfit says why a node is not chosen by itself; empty when it may be.
func unfit(n corev1.Node) string {
	if !ready(n) {
		return "is not ready"
	}
	if n.Spec.Unschedulable {
		return "is cordoned"
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return "has the taint " + t.ToString()
		}
	}
	return ""
}

// nodeIP is the address of a node in the family that is measured.
func nodeIP(n corev1.Node, six bool) (netip.Addr, error) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind && ip.Is6() == six {
				return ip, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("node %s has no address of %s", n.Name, family(six))
}

// podIP is the address of a running pod in the family that is measured.
func podIP(p corev1.Pod, six bool) (netip.Addr, error) {
	for _, a := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(a.IP); err == nil && ip.Is6() == six {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s has no address of %s, only %v", p.Name, family(six), p.Status.PodIPs)
}

func family(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}

// describeNode keeps what the API says of a node.
func describeNode(n corev1.Node) result.ClusterNode {
	i := n.Status.NodeInfo
	d := result.ClusterNode{
		Name: n.Name, PodCIDRs: n.Spec.PodCIDRs, Kernel: i.KernelVersion, System: i.OSImage,
		Runtime: i.ContainerRuntimeVersion, Kubelet: i.KubeletVersion, Architecture: i.Architecture,
		CPUs: int(n.Status.Capacity.Cpu().Value()), MemoryBytes: uint64(n.Status.Capacity.Memory().Value()),
		Zone: n.Labels[corev1.LabelTopologyZone],
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			d.Addresses = append(d.Addresses, a.Address)
		}
	}
	return d
}
