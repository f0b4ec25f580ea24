//go:build kubernetes

package smoke

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// cast are the nodes and the pods that most tests use. The pods live from the first test that wants them until the
// last; tests that make their nodes restart leave them ready.
type fixtures struct {
	// near and far are the two nodes, with their addresses.
	near, far node
	// a and b are pods on the near node, remote is one on the far node; hostNear and hostFar have their node's network.
	a, b, remote, hostNear, hostFar testPod
}

type node struct{ name, address string }

// testPod is a pod with its address.
type testPod struct {
	runner
	pod     string
	node    node
	address string
}

// echo is where the pod's echo servers listen, who where it says who it is.
func (a testPod) echo() string {
	if a.address == a.node.address {
		return hostPort(a.address, hostEchoPort)
	}
	return hostPort(a.address, echoPort)
}

func (a testPod) who() string {
	if a.address == a.node.address {
		return hostPort(a.address, hostHTTPPort)
	}
	return hostPort(a.address, httpPort)
}

func hostPort(address string, port int) string { return net.JoinHostPort(address, fmt.Sprint(port)) }

// familyOf is what goes with the family of an address, or of a prefix.
func familyOf(address, ipv4, ipv6 string) string {
	if strings.Contains(address, ":") {
		return ipv6
	}
	return ipv4
}

// alone is the prefix that has this address and no other.
func alone(t *testing.T, address string) string {
	t.Helper()
	a, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// fixtureLabel is the label of the pods of the cast that have a network of their own.
const fixtureLabel, fixtureValue = "cast", "pod"

// useFixtures makes the cast, where it is not there yet, and gives it as it is now.
func useFixtures(t *testing.T) fixtures {
	t.Helper()
	nodes := clusterNodes(t)
	c := fixtures{near: nodes[0], far: nodes[1]}
	var objects []any
	for _, m := range []struct{ name, node string }{{"a", c.near.name}, {"b", c.near.name}, {"remote", c.far.name}} {
		pod := withTurn(podObject(m.name, m.node))
		pod.Labels[fixtureLabel] = fixtureValue
		objects = append(objects, pod)
	}
	objects = append(objects, withTurn(hostPodObject("host-near", c.near.name)), withTurn(hostPodObject("host-far", c.far.name)))
	apply(t, objects...)
	pods := waitReady(t, "a", "b", "remote", "host-near", "host-far")
	member := func(name string, n node) testPod {
		return testPod{inPod(name), name, n, pods[name].Status.PodIP}
	}
	c.a, c.b, c.remote = member("a", c.near), member("b", c.near), member("remote", c.far)
	c.hostNear, c.hostFar = member("host-near", c.near), member("host-far", c.far)
	return c
}

// clusterNodes are the nodes, sorted by name. There are at least two.
func clusterNodes(t *testing.T) (nodes []node) {
	t.Helper()
	var list corev1.NodeList
	mustGet(t, &list, "nodes")
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node-role.kubernetes.io/control-plane" }) {
			continue // takes no pods of tests
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				nodes = append(nodes, node{n.Name, a.Address})
				break
			}
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	if len(nodes) < 2 {
		t.Fatalf("the cluster has %d nodes, two are needed", len(nodes))
	}
	return nodes
}
