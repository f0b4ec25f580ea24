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

// fixtures are the nodes and pods that most tests use. The pods exist from the first test that needs them to the last
// one. Tests that restart their nodes wait until they are ready.
type fixtures struct {
	// near and far are the two nodes, with their addresses.
	near, far node
	// a and b are pods on the near node, remote is one on the far node; hostNear and hostFar use the host network.
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

// echo is the address of the pod's echo servers, who of its HTTP server, which replies with its name.
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

// familyOf returns the value for the family of an address or prefix.
func familyOf(address, ipv4, ipv6 string) string {
	if strings.Contains(address, ":") {
		return ipv6
	}
	return ipv4
}

// alone returns the host prefix of an address.
func alone(t *testing.T, address string) string {
	t.Helper()
	a, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// fixtureLabel is the label of fixture pods without host network.
const fixtureLabel, fixtureValue = "cast", "pod"

// useFixtures creates missing fixtures and returns their current state.
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

// clusterNodes are the nodes, sorted by name; at least two.
func clusterNodes(t *testing.T) (nodes []node) {
	t.Helper()
	var list corev1.NodeList
	mustGet(t, &list, "nodes")
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node-role.kubernetes.io/control-plane" }) {
			continue // does not schedule test pods
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
