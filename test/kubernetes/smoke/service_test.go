//go:build kubernetes

package smoke

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// clusterIP: Services lead to their pods on the client's node and on others, over TCP and UDP, from pods, from pods
// with the node's network and from the nodes; a Service of several pods leads to all of them.
func clusterIP(t *testing.T) {
	c := theCast(t)
	near, far, all := serviceObject("near", "name", c.b.pod), serviceObject("far", "name", c.remote.pod), serviceObject("all", castLabel, castMember)
	applyForTest(t, near, far, all)
	addresses := map[string]string{}
	for _, s := range []*corev1.Service{near, far, all} {
		addresses[s.Name] = serviceAddress(t, s.Name)
	}
	for _, client := range []place{c.a.place, c.remote.place, c.hostNear.place, c.hostFar.place, onNode(c.near.name), onNode(c.far.name)} {
		for name, backend := range map[string]actor{"near": c.b, "far": c.remote} {
			awaitService(t, client, hostPort(addresses[name], 80))
			if client.name == backend.name {
				continue // clusterIPHairpin
			}
			wantAnswer(t, client, hostPort(addresses[name], 80), answer{Pod: backend.pod, Node: backend.node.name})
			client.want(t, "echo", "tcp", hostPort(addresses[name], 7), "-bytes=1000000", "-count=5")
			client.want(t, "echo", "udp", hostPort(addresses[name], 7), "-count=20")
			learnPath(client, hostPort(addresses[name], 7))
			client.want(t, "echo", "udp", hostPort(addresses[name], 7), "-bytes=6000")
		}
	}
	// What pods send through a Service keeps their address.
	wantAnswer(t, c.a.place, hostPort(addresses["near"], 80), answer{Client: c.a.address})
	wantAnswer(t, c.a.place, hostPort(addresses["far"], 80), answer{Client: c.a.address})

	const many = 300
	answered := pods(mustAsk(t, c.a.place, hostPort(addresses["all"], 80), fmt.Sprintf("-count=%d", many)))
	for _, backend := range []actor{c.a, c.b, c.remote} {
		if answered[backend.pod] < many/10 {
			t.Errorf("of %d connections through one Service to three pods, %s got %d", many, backend.pod, answered[backend.pod])
		}
	}
}

// bothWays: a pod that talks to another one directly and through a Service at the same time, with many connections each,
// loses none: the same port on its side may be in use both ways.
func bothWays(t *testing.T) {
	c := theCast(t)
	service := serviceObject("both-ways", "name", c.remote.pod)
	applyForTest(t, service)
	through := serviceAddress(t, service.Name)
	awaitService(t, c.a.place, hostPort(through, 80))
	for _, first := range []string{hostPort(through, 7), c.remote.echo()} {
		second := c.remote.echo()
		if first == second {
			second = hostPort(through, 7)
		}
		c.a.want(t, "echo", "tcp", first, "-bytes=100", "-ports=20000-20499")
		c.a.want(t, "echo", "tcp", second, "-bytes=100", "-ports=20000-20499")
	}
}

// clusterIPHairpin: a pod reaches itself through its own Service.
func clusterIPHairpin(t *testing.T) {
	c := theCast(t)
	service := serviceObject("self", "name", c.a.pod)
	applyForTest(t, service)
	address := serviceAddress(t, service.Name)
	awaitService(t, c.a.place, hostPort(address, 80))
	wantAnswer(t, c.a.place, hostPort(address, 80), answer{Pod: c.a.pod})
	c.a.want(t, "echo", "tcp", hostPort(address, 7), "-bytes=1000000", "-count=5")
	c.a.want(t, "echo", "udp", hostPort(address, 7), "-count=20")
}

// nodePort: the port of a Service on every node leads to its pod, wherever that is, from outside, from pods and from
// the nodes.
func nodePort(t *testing.T) {
	c := theCast(t)
	service := serviceObject("nodeport", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeNodePort
	applyForTest(t, service)
	ports := nodePorts(t, service.Name)
	for _, client := range []place{outside(), c.a.place, c.remote.place, onNode(c.near.name)} {
		for _, n := range []node{c.near, c.far} {
			who := hostPort(n.address, ports["who"])
			awaitService(t, client, who)
			wantAnswer(t, client, who, answer{Pod: c.remote.pod})
			client.want(t, "echo", "tcp", hostPort(n.address, ports["echo-tcp"]), "-bytes=1000000", "-count=5")
			client.want(t, "echo", "udp", hostPort(n.address, ports["echo-udp"]), "-count=20")
		}
	}
}

// nodePortLocal: with externalTrafficPolicy Local the pod sees the client's address, and a node without such a pod
// answers nobody.
func nodePortLocal(t *testing.T) {
	c := theCast(t)
	service := serviceObject("local", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	applyForTest(t, service)
	ports := nodePorts(t, service.Name)
	there, elsewhere := hostPort(c.far.address, ports["who"]), hostPort(c.near.address, ports["who"])
	awaitService(t, outside(), there)
	wantAnswer(t, outside(), there, answer{Pod: c.remote.pod, Client: outsideAddress(t, c.far)})
	if all, err := ask(outside(), elsewhere, "-patience=2s"); err == nil {
		t.Errorf("the node without a pod of the Service answers: %v", all)
	}
}

// hostPorts: a pod's host ports, TCP and UDP, lead to it from outside, from other nodes and from pods.
func hostPorts(t *testing.T) {
	c := theCast(t)
	const who, echo = 25080, 25007 // no NodePorts: those of Services that other tests make are any
	pod := podObject("host-port", c.far.name)
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: httpPort, HostPort: who, Protocol: corev1.ProtocolTCP},
		{ContainerPort: echoPort, HostPort: echo, Protocol: corev1.ProtocolTCP},
		{ContainerPort: echoPort, HostPort: echo, Protocol: corev1.ProtocolUDP},
	}
	applyForTest(t, pod)
	waitReady(t, pod.Name)
	for _, client := range []place{outside(), onNode(c.near.name), c.a.place, c.remote.place, c.hostFar.place} {
		wantAnswer(t, client, hostPort(c.far.address, who), answer{Pod: pod.Name})
		client.want(t, "echo", "tcp", hostPort(c.far.address, echo), "-bytes=1000000", "-count=3")
		client.want(t, "echo", "udp", hostPort(c.far.address, echo), "-count=20")
	}
	wantAnswer(t, outside(), hostPort(c.far.address, who), answer{Client: outsideAddress(t, c.far)})
}

// serviceAddress is the ClusterIP of a Service.
func serviceAddress(t *testing.T, name string) string {
	t.Helper()
	var s corev1.Service
	mustGet(t, &s, "service", name)
	return s.Spec.ClusterIP
}

// nodePorts are the ports that a Service has on the nodes, by their names.
func nodePorts(t *testing.T, name string) map[string]int {
	t.Helper()
	var s corev1.Service
	mustGet(t, &s, "service", name)
	ports := map[string]int{}
	for _, p := range s.Spec.Ports {
		ports[p.Name] = int(p.NodePort)
	}
	return ports
}

// awaitService waits until a new Service answers this client: every node's kube-proxy learns of it a moment later.
func awaitService(t *testing.T, client place, address string) {
	t.Helper()
	eventually(t, func() error {
		_, err := ask(client, address, "-patience=1s")
		return err
	})
}
