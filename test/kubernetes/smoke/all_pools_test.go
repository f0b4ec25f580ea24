//go:build kubernetes

package smoke

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// poolsLabel and sideLabel are labels of the pods of podsOfAllPools. The side is "near" or "far".
const poolsLabel, poolsValue, sideLabel = "pools", "all", "side"

// podsOfAllPools: pods of the node's range, and of each pool, on both nodes: all reach each other with their own
// addresses, nodes, external hosts and Services, and policies are enforced between all of them.
func podsOfAllPools(t *testing.T) {
	c := useFixtures(t)
	pods := makePodsOfAllPools(t, c)
	t.Run("Devices", func(t *testing.T) { haveTheirDevices(t, c, pods) })
	t.Run("Pods", func(t *testing.T) {
		for _, from := range pods {
			for _, to := range pods {
				if from.pod != to.pod {
					wantExchange(t, from, to)
				}
			}
		}
	})
	t.Run("Nodes", func(t *testing.T) {
		for _, pod := range pods {
			for _, n := range []node{c.near, c.far} {
				pod.want(t, "ping", n.address)
				pod.want(t, "echo", "tcp", hostPort(n.address, hostEchoPort), "-bytes=1000000")
				pod.want(t, "echo", "udp", hostPort(n.address, hostEchoPort), "-bytes=6000")
				onNode(n.name).want(t, "ping", pod.address, "-bytes=4000")
				onNode(n.name).want(t, "echo", "tcp", pod.echo(), "-bytes=1000000")
				onNode(n.name).want(t, "echo", "udp", pod.echo(), "-bytes=6000")
			}
		}
	})
	t.Run("External", func(t *testing.T) {
		needOutside(t)
		for _, pod := range pods {
			pod.want(t, "ping", outsideAddress(t, pod.node))
			outside().want(t, "ping", pod.address)
			outside().want(t, "echo", "tcp", pod.echo(), "-bytes=1000000")
			outside().want(t, "echo", "udp", pod.echo(), "-bytes=6000")
		}
	})
	t.Run("Services", func(t *testing.T) { servicesOfAllPools(t, c, pods) })
	t.Run("Policies", func(t *testing.T) { policiesOfAllPools(t, pods) })
}

// makePodsOfAllPools makes a pod of each pool on each node.
func makePodsOfAllPools(t *testing.T, c fixtures) (pods []testPod) {
	var objects []any
	var names []string
	for _, pool := range poolNames() {
		for side, n := range map[string]node{"near": c.near, "far": c.far} {
			pod := withTurn(podObject(pool+"-"+side, n.name))
			pod.Annotations = inPool(pool)
			pod.Labels[poolsLabel], pod.Labels[sideLabel] = poolsValue, side
			pod.Spec.Containers[0].Resources.Requests = nil // more than a small machine has
			objects, names = append(objects, pod), append(names, pod.Name)
			pods = append(pods, testPod{runner: inPod(pod.Name), pod: pod.Name, node: n})
		}
	}
	applyForTest(t, objects...)
	ready := waitReady(t, names...)
	for i := range pods {
		pods[i].address = ready[pods[i].pod].Status.PodIP
	}
	slices.SortFunc(pods, func(a, b testPod) int { return strings.Compare(a.pod, b.pod) })
	return pods
}

// haveTheirDevices: agents say that pods have addresses of their pool, and the pool's kind of device.
func haveTheirDevices(t *testing.T, c fixtures, pods []testPod) {
	devices := map[string]string{}
	for _, p := range testbedPools() {
		devices[p.Name] = p.Device
	}
	var checked int
	for _, n := range []node{c.near, c.far} {
		endpoints, err := agentEndpoints(n.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range endpoints {
			if !slices.ContainsFunc(pods, func(p testPod) bool { return p.pod == e.Pod.Name && e.Pod.Namespace == namespace }) {
				continue
			}
			checked++
			var pod corev1.Pod
			mustGet(t, &pod, "pod", e.Pod.Name)
			want := pod.Annotations[poolAnnotation]
			if want == poolNone {
				want = ""
			}
			if e.Pool != want || poolWith(e.Addresses[0]) != want {
				t.Errorf("%s has %s of pool %q, want pool %q", e.Pod.Name, e.Addresses, e.Pool, want)
			}
			if macvlan := devices[want] == plan.DeviceMacvlan; macvlan != (e.Device == plan.DeviceMacvlan) {
				t.Errorf("%s of pool %q has a device %s", e.Pod.Name, want, e.Device)
			}
		}
	}
	if checked != len(pods) {
		t.Errorf("agents have %d of the %d pods", checked, len(pods))
	}
}

// wantExchange: one pod reaches another by all protocols, and is seen with its own address.
func wantExchange(t *testing.T, from, to testPod) {
	t.Helper()
	wantReply(t, from.runner, to.who(), reply{to.pod, to.node.name, from.address})
	from.want(t, "echo", "tcp", to.echo(), "-bytes=1000000", "-count=3")
	learnPath(from.runner, to.echo())
	from.want(t, "echo", "udp", to.echo(), "-bytes=6000", "-count=3")
	from.want(t, "ping", to.address, "-bytes=4000")
}

// servicesOfAllPools: a Service has pods of all kinds behind it. All of them get connections, from all of them, the
// nodes and external hosts.
func servicesOfAllPools(t *testing.T, c fixtures, all []testPod) {
	needOutside(t)
	service := serviceObject("all-pools", poolsLabel, poolsValue)
	service.Spec.Type = corev1.ServiceTypeNodePort
	applyForTest(t, service)
	ports := nodePorts(t, service.Name)
	inside := serviceAddress(t, service.Name)
	clients := []runner{c.hostNear.runner, c.hostFar.runner, onNode(c.near.name), onNode(c.far.name)}
	for _, p := range all {
		clients = append(clients, p.runner)
	}
	wantAll := func(client runner, address string, who, echo int) {
		const each = 40
		awaitService(t, client, hostPort(address, who))
		answered := pods(mustAsk(t, client, hostPort(address, who), fmt.Sprintf("-count=%d", each*len(all))))
		for _, p := range all {
			if answered[p.pod] < each/4 {
				t.Errorf("%s asks %s: of %d connections %s got %d", client.name, address, each*len(all), p.pod, answered[p.pod])
			}
		}
		client.want(t, "echo", "tcp", hostPort(address, echo), "-bytes=1000000", "-count=10")
		client.want(t, "echo", "udp", hostPort(address, echo), "-count=20")
	}
	for _, client := range clients {
		wantAll(client, inside, 80, 7)
	}
	for _, client := range append(clients, outside()) {
		for _, n := range []node{c.near, c.far} {
			wantAll(client, n.address, ports["who"], ports["echo-tcp"])
		}
	}
}

// policiesOfAllPools: pods on the far node admit those on the near one only, and pods on the near node may send to each
// other only.
func policiesOfAllPools(t *testing.T, all []testPod) {
	side := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{sideLabel: name}}
	}
	policy := func(name, selected string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
		p := policyFor(testPod{}, spec)
		p.Name, p.Spec.PodSelector = name, side(selected)
		return p
	}
	near := side("near")
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &near}
	isNear := func(p testPod) bool { return strings.HasSuffix(p.pod, "-near") }
	check := func(t *testing.T, allowed func(from, to testPod) bool) {
		for _, from := range all {
			for _, to := range all {
				if from.pod != to.pod {
					wantReach(t, reach{from, to.address, allowed(from, to)})
				}
			}
		}
	}
	t.Run("Ingress", func(t *testing.T) {
		applyForTest(t, policy("ingress-all-pools", "far", from(peer)))
		check(t, func(from, to testPod) bool { return isNear(to) || isNear(from) })
		needOutside(t)
		for _, to := range all {
			if a := netip.MustParseAddr(to.address); poolWith(a) != "" && !isNear(to) {
				if replies, err := ask(outside(), to.who(), "-patience=1s"); err == nil {
					t.Errorf("the external host, which no policy admits, gets a reply of %s: %v", to.pod, replies)
				}
			}
		}
	})
	t.Run("Egress", func(t *testing.T) {
		applyForTest(t, policy("egress-all-pools", "near", to(peer)))
		check(t, func(from, to testPod) bool { return !isNear(from) || isNear(to) })
	})
}
