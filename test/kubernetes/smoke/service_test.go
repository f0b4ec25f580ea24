//go:build kubernetes

package smoke

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// clusterIP: Services lead to their pods on the client's node and on others, over TCP and UDP, from pods,
// host-network pods and nodes. All pods of a Service get connections.
func clusterIP(t *testing.T) {
	c := useFixtures(t)
	near, far, all := serviceObject("near", "name", c.b.pod), serviceObject("far", "name", c.remote.pod), serviceObject("all", fixtureLabel, fixtureValue)
	applyForTest(t, near, far, all)
	addresses := map[string]string{}
	for _, s := range []*corev1.Service{near, far, all} {
		addresses[s.Name] = serviceAddress(t, s.Name)
	}
	for _, client := range []runner{c.a.runner, c.remote.runner, c.hostNear.runner, c.hostFar.runner, onNode(c.near.name), onNode(c.far.name)} {
		for name, backend := range map[string]testPod{"near": c.b, "far": c.remote} {
			awaitService(t, client, hostPort(addresses[name], 80))
			if client.name == backend.name {
				continue // clusterIPHairpin
			}
			wantReply(t, client, hostPort(addresses[name], 80), reply{Pod: backend.pod, Node: backend.node.name})
			client.want(t, "echo", "tcp", hostPort(addresses[name], 7), "-bytes=1000000", "-count=5")
			client.want(t, "echo", "udp", hostPort(addresses[name], 7), "-count=20")
			learnPath(client, hostPort(addresses[name], 7))
			client.want(t, "echo", "udp", hostPort(addresses[name], 7), "-bytes=6000")
		}
	}
	// Service traffic of pods keeps their address.
	wantReply(t, c.a.runner, hostPort(addresses["near"], 80), reply{Client: c.a.address})
	wantReply(t, c.a.runner, hostPort(addresses["far"], 80), reply{Client: c.a.address})

	const many = 300
	answered := pods(mustAsk(t, c.a.runner, hostPort(addresses["all"], 80), fmt.Sprintf("-count=%d", many)))
	for _, backend := range []testPod{c.a, c.b, c.remote} {
		if answered[backend.pod] < many/10 {
			t.Errorf("of %d connections through one Service to three pods, %s got %d", many, backend.pod, answered[backend.pod])
		}
	}
}

// directAndService: a pod that connects to another one directly and through a Service at once, many times, loses no
// connection: the same client port may be used for both.
func directAndService(t *testing.T) {
	c := useFixtures(t)
	service := serviceObject("both-ways", "name", c.remote.pod)
	applyForTest(t, service)
	through := serviceAddress(t, service.Name)
	awaitService(t, c.a.runner, hostPort(through, 80))
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
	c := useFixtures(t)
	service := serviceObject("self", "name", c.a.pod)
	applyForTest(t, service)
	address := serviceAddress(t, service.Name)
	awaitService(t, c.a.runner, hostPort(address, 80))
	wantReply(t, c.a.runner, hostPort(address, 80), reply{Pod: c.a.pod})
	c.a.want(t, "echo", "tcp", hostPort(address, 7), "-bytes=1000000", "-count=5")
	c.a.want(t, "echo", "udp", hostPort(address, 7), "-count=20")
}

// nodePort: the port of a Service on every node leads to its pod on any node, from external hosts, pods and nodes.
func nodePort(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	service := serviceObject("nodeport", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeNodePort
	applyForTest(t, service)
	ports := nodePorts(t, service.Name)
	for _, client := range []runner{outside(), c.a.runner, c.remote.runner, onNode(c.near.name)} {
		for _, n := range []node{c.near, c.far} {
			who := hostPort(n.address, ports["who"])
			awaitService(t, client, who)
			wantReply(t, client, who, reply{Pod: c.remote.pod})
			client.want(t, "echo", "tcp", hostPort(n.address, ports["echo-tcp"]), "-bytes=1000000", "-count=5")
			client.want(t, "echo", "udp", hostPort(n.address, ports["echo-udp"]), "-count=20")
		}
	}
}

// nodePortLocal: with externalTrafficPolicy Local the pod sees the client's address, and a node without such a pod
// does not reply.
func nodePortLocal(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	service := serviceObject("local", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	applyForTest(t, service)
	ports := nodePorts(t, service.Name)
	there, elsewhere := hostPort(c.far.address, ports["who"]), hostPort(c.near.address, ports["who"])
	awaitService(t, outside(), there)
	wantReply(t, outside(), there, reply{Pod: c.remote.pod, Client: outsideAddress(t, c.far)})
	if all, err := ask(outside(), elsewhere, "-patience=2s"); err == nil {
		t.Errorf("the node without a pod of the Service answers: %v", all)
	}
}

// hostPorts: a pod's host ports, TCP and UDP, lead to it from external hosts, other nodes and pods.
func hostPorts(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	const who, echo = 25080, 25007 // outside the NodePort range, which other tests use
	pod := podObject("host-port", c.far.name)
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: httpPort, HostPort: who, Protocol: corev1.ProtocolTCP},
		{ContainerPort: echoPort, HostPort: echo, Protocol: corev1.ProtocolTCP},
		{ContainerPort: echoPort, HostPort: echo, Protocol: corev1.ProtocolUDP},
	}
	applyForTest(t, pod)
	waitReady(t, pod.Name)
	for _, client := range []runner{outside(), onNode(c.near.name), c.a.runner, c.remote.runner, c.hostFar.runner} {
		wantReply(t, client, hostPort(c.far.address, who), reply{Pod: pod.Name})
		client.want(t, "echo", "tcp", hostPort(c.far.address, echo), "-bytes=1000000", "-count=3")
		client.want(t, "echo", "udp", hostPort(c.far.address, echo), "-count=20")
	}
	wantReply(t, outside(), hostPort(c.far.address, who), reply{Client: outsideAddress(t, c.far)})
}

// serviceAddress is the ClusterIP of a Service.
func serviceAddress(t *testing.T, name string) string {
	t.Helper()
	var s corev1.Service
	mustGet(t, &s, "service", name)
	return s.Spec.ClusterIP
}

// nodePorts are the NodePorts of a Service, by port name.
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

// awaitService waits until a new Service replies to this client: nodes get it a moment later.
func awaitService(t *testing.T, client runner, address string) {
	t.Helper()
	eventually(t, func() error {
		_, err := ask(client, address, "-patience=1s")
		return err
	})
}
