//go:build kubernetes

package smoke

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// nodesAreReady: every node is ready, and no condition or taint says that its network is unavailable.
func nodesAreReady(t *testing.T) {
	for _, n := range clusterNodes(t) {
		waitNodeReady(t, n.name)
		status, why, err := nodeCondition(n.name, corev1.NodeNetworkUnavailable)
		if err != nil {
			t.Fatal(err)
		}
		if isBeeline() && (status != corev1.ConditionFalse || !strings.HasPrefix(why, "BeelineReady")) {
			t.Errorf("node %s: NetworkUnavailable is %s (%s), want False (BeelineReady…)", n.name, status, why)
		}
		var object corev1.Node
		mustGet(t, &object, "node", n.name)
		for _, taint := range object.Spec.Taints {
			t.Errorf("node %s has the taint %s", n.name, taint.Key)
		}
	}
}

// podsReachPods: TCP, UDP and ICMP, on one node and across nodes, in both directions, also with fragmented packets.
func podsReachPods(t *testing.T) {
	c := useFixtures(t)
	for _, pair := range [][2]testPod{{c.a, c.b}, {c.b, c.a}, {c.a, c.remote}, {c.remote, c.a}} {
		from, to := pair[0], pair[1]
		from.want(t, "echo", "tcp", to.echo(), "-count=20")
		from.want(t, "echo", "udp", to.echo(), "-count=20")
		learnPath(from.runner, to.echo())
		from.want(t, "echo", "udp", to.echo(), "-bytes=6000", "-count=3")
		from.want(t, "ping", to.address)
		from.want(t, "ping", to.address, "-bytes=4000")
		wantReply(t, from.runner, to.who(), reply{to.pod, to.node.name, from.address})
	}
}

// podsAndNodes: pods reach their own and other nodes, nodes reach pods, and so does an external host.
func podsAndNodes(t *testing.T) {
	c := useFixtures(t)
	for _, pod := range []testPod{c.a, c.remote} {
		for _, n := range []node{c.near, c.far} {
			pod.want(t, "ping", n.address)
			pod.want(t, "echo", "tcp", hostPort(n.address, hostEchoPort), "-bytes=100000")
			pod.want(t, "echo", "udp", hostPort(n.address, hostEchoPort), "-count=10")
			onNode(n.name).want(t, "ping", pod.address)
			onNode(n.name).want(t, "echo", "tcp", pod.echo(), "-bytes=100000")
			onNode(n.name).want(t, "echo", "udp", pod.echo(), "-count=10")
		}
	}
}

// hostNetworkPods: pods with and without host network reach each other with their own addresses.
func hostNetworkPods(t *testing.T) {
	c := useFixtures(t)
	for _, host := range []testPod{c.hostNear, c.hostFar} {
		for _, pod := range []testPod{c.a, c.remote} {
			// Remote pods see host processes with the node's address; local pods may see another one.
			if host.node != pod.node {
				wantReply(t, host.runner, pod.who(), reply{pod.pod, pod.node.name, host.address})
			}
			wantReply(t, pod.runner, host.who(), reply{host.pod, host.node.name, pod.address})
			host.want(t, "echo", "udp", pod.echo(), "-count=10")
			pod.want(t, "echo", "udp", host.echo(), "-count=10")
		}
	}
}

// largeTransfers: bulk data in both directions at once, between pods, and between pods and nodes.
func largeTransfers(t *testing.T) {
	c := useFixtures(t)
	const size = "-bytes=100000000"
	c.a.want(t, "echo", "tcp", c.b.echo(), size)
	c.a.want(t, "echo", "tcp", c.remote.echo(), size)
	c.remote.want(t, "echo", "tcp", c.a.echo(), size)
	c.a.want(t, "echo", "tcp", c.hostFar.echo(), size)
	c.hostFar.want(t, "echo", "tcp", c.a.echo(), size)
}

// probesOfTheKubelet: HTTP and TCP probes reach the pod, exec probes run, and changes of readiness are followed.
func probesOfTheKubelet(t *testing.T) {
	nodes := clusterNodes(t)
	probed := func(name string, node node, h corev1.ProbeHandler) *corev1.Pod {
		pod := podObject(name, node.name)
		pod.Spec.Containers[0].ReadinessProbe = readyWhen(h)
		pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 100}
		return pod
	}
	tcp := func(port int32) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}
	}
	flips := podObject("probe-http", nodes[0].name)
	applyForTest(t, flips,
		probed("probe-tcp", nodes[1], tcp(echoPort)),
		probed("probe-exec", nodes[1], corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/probe", "ask", "127.0.0.1:8080"}}}),
		probed("probe-closed", nodes[0], tcp(1)))
	waitReady(t, "probe-http", "probe-tcp", "probe-exec")
	for _, ready := range []string{"false", "true"} {
		inPod("probe-http").want(t, "ready", ready)
		waitPod(t, "probe-http", func(p corev1.Pod) bool { return isReady(p) == (ready == "true") })
	}
	var closed corev1.Pod
	mustGet(t, &closed, "pod", "probe-closed")
	if isReady(closed) {
		t.Error("a pod is ready although the probed port is closed")
	}
}
