//go:build kubernetes

package smoke

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sessionAffinity: all connections of one client go to one pod, also of external clients, on any port of the Service.
func sessionAffinity(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	service := serviceObject("sticky", fixtureLabel, fixtureValue)
	service.Spec.Type = corev1.ServiceTypeNodePort
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	applyForTest(t, service)
	inside, port := hostPort(serviceAddress(t, service.Name), 80), nodePorts(t, service.Name)["who"]
	for address, clients := range map[string][]runner{
		inside:                         {c.a.runner, c.remote.runner, c.hostNear.runner, onNode(c.far.name)},
		hostPort(c.near.address, port): {outside()},
	} {
		for _, client := range clients {
			awaitService(t, client, address)
			if answered := pods(mustAsk(t, client, address, "-count=40")); len(answered) != 1 {
				t.Errorf("%s: 40 connections with session affinity went to %v", client.name, answered)
			}
		}
	}
}

// rejection: a Service without endpoints rejects connections at once, from everywhere.
func rejection(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	service := serviceObject("no-endpoints", "name", "no-such-pod")
	service.Spec.Type = corev1.ServiceTypeNodePort
	applyForTest(t, service)
	inside, ports := serviceAddress(t, service.Name), nodePorts(t, service.Name)
	for _, client := range []runner{c.a.runner, c.remote.runner, c.hostNear.runner, onNode(c.far.name)} {
		wantRejected(t, client, hostPort(inside, 80))
		wantRejected(t, client, hostPort(c.near.address, ports["who"]))
	}
	wantRejected(t, outside(), hostPort(c.near.address, ports["who"]))
	wantRejected(t, outside(), hostPort(c.far.address, ports["who"]))
}

// wantRejected waits until connections are rejected, once the node has the Service.
func wantRejected(t *testing.T, client runner, address string) {
	t.Helper()
	eventually(t, func() error {
		all, err := ask(client, address, "-patience=3s")
		if err == nil {
			return fmt.Errorf("%s: %s answers: %v", client.name, address, all)
		}
		if !strings.Contains(err.Error(), "connection refused") {
			return fmt.Errorf("%s: %s does not refuse: %w", client.name, address, err)
		}
		return nil
	})
}

// loadBalancer: the address in a Service's status leads to its pods, from pods, nodes and external clients; from
// external ones only within its source ranges.
func loadBalancer(t *testing.T) {
	needTestbed(t, "add routes to the machine outside")
	c := useFixtures(t)
	vip := familyOf(c.near.address, "198.51.100.80", "2001:db8::80")
	service := serviceObject("balanced", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.AllocateLoadBalancerNodePorts = ptr(false)
	service.Spec.LoadBalancerSourceRanges = []string{alone(t, outsideAddress(t, c.near)), alone(t, c.a.address)}
	applyForTest(t, service)
	setIngress(t, service.Name, vip)
	routeFromOutside(t, vip, c.near)
	for name, port := range nodePorts(t, service.Name) {
		if port != 0 {
			t.Errorf("port %s has NodePort %d, which was not requested", name, port)
		}
	}
	for _, client := range []runner{outside(), c.a.runner} {
		awaitService(t, client, hostPort(vip, 80))
		wantReply(t, client, hostPort(vip, 80), reply{Pod: c.remote.pod})
		client.want(t, "echo", "tcp", hostPort(vip, 7), "-bytes=1000000", "-count=3")
		client.want(t, "echo", "udp", hostPort(vip, 7), "-count=20")
	}
	if all, err := ask(c.b.runner, hostPort(vip, 80), "-patience=2s"); err == nil {
		t.Errorf("%s is not in loadBalancerSourceRanges and gets a reply: %v", c.b.pod, all)
	}

	service.Spec.LoadBalancerSourceRanges = []string{familyOf(vip, "203.0.113.0/24", "2001:db8:113::/48")}
	apply(t, service)
	setIngress(t, service.Name, vip)
	eventually(t, func() error {
		all, err := ask(outside(), hostPort(vip, 80), "-patience=1s")
		if err == nil {
			return fmt.Errorf("the external host is not in loadBalancerSourceRanges and gets a reply: %v", all)
		}
		return nil
	})
}

// setIngress sets a load balancer's address, as a cloud controller does.
func setIngress(t *testing.T, service, address string) {
	t.Helper()
	mustKubectl(t, "-n", namespace, "patch", "service", service, "--subresource=status", "--type=merge",
		"-p", fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, address))
}

// routeFromOutside routes an address to a node on the machine outside, as routers would.
func routeFromOutside(t *testing.T, address string, through node) {
	t.Helper()
	if _, err := outside().run("ip", "route", "replace", address, "via", through.address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := outside().run("ip", "route", "del", address); err != nil {
			t.Error(err)
		}
	})
}

// externalIP: an address that no node has leads to the Service that names it.
func externalIP(t *testing.T) {
	needTestbed(t, "add routes to the machine outside")
	c := useFixtures(t)
	address := familyOf(c.near.address, "198.51.100.32", "2001:db8::32")
	service := serviceObject("external", "name", c.remote.pod)
	service.Spec.ExternalIPs = []string{address}
	applyForTest(t, service)
	routeFromOutside(t, address, c.near)
	for _, client := range []runner{outside(), c.a.runner, c.remote.runner, onNode(c.far.name)} {
		awaitService(t, client, hostPort(address, 80))
		wantReply(t, client, hostPort(address, 80), reply{Pod: c.remote.pod})
		if client.name != c.remote.name { // clusterIPHairpin
			client.want(t, "echo", "udp", hostPort(address, 7), "-count=10")
		}
	}
}

// internalLocal: with internalTrafficPolicy Local a pod reaches only pods on its node; without any, connections are
// dropped.
func internalLocal(t *testing.T) {
	c := useFixtures(t)
	service := serviceObject("internal", "name", c.remote.pod)
	service.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	applyForTest(t, service)
	address := hostPort(serviceAddress(t, service.Name), 80)
	awaitService(t, c.hostFar.runner, address)
	wantReply(t, onNode(c.far.name), address, reply{Pod: c.remote.pod})
	for _, client := range []runner{c.a.runner, onNode(c.near.name)} {
		if all, err := ask(client, address, "-patience=2s"); err == nil {
			t.Errorf("%s: no pod of the Service is on its node, and there is a reply: %v", client.name, all)
		}
	}
}

// healthCheck: the healthCheckNodePort of a Service reports for each node whether it has a pod of the Service.
func healthCheck(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	service := serviceObject("healthy", "name", c.remote.pod)
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	applyForTest(t, service)
	var made corev1.Service
	mustGet(t, &made, "service", service.Name)
	port := int(made.Spec.HealthCheckNodePort)
	awaitService(t, outside(), hostPort(c.far.address, port)) // 200
	eventually(t, func() error {
		_, err := ask(outside(), hostPort(c.near.address, port), "-patience=2s")
		switch {
		case err == nil:
			return fmt.Errorf("node %s has no pod of the Service, and reports healthy", c.near.name)
		case !strings.Contains(err.Error(), "503"):
			return fmt.Errorf("node %s has no pod of the Service, and its health is not 503: %w", c.near.name, err)
		}
		return nil
	})
}

// terminating: the last pod of a Service serves until it ends.
func terminating(t *testing.T) {
	c := useFixtures(t)
	pod := podObject("ending", c.far.name)
	lingers(pod)
	service := serviceObject("ending", "name", pod.Name)
	applyForTest(t, pod, service)
	waitReady(t, pod.Name)
	address := hostPort(serviceAddress(t, service.Name), 80)
	awaitService(t, c.a.runner, address)
	mustKubectl(t, "-n", namespace, "delete", "pod", pod.Name, "--wait=false")
	for begin := time.Now(); time.Since(begin) < 3*time.Second; {
		wantReply(t, c.a.runner, address, reply{Pod: pod.Name})
	}
}

// lingers makes a pod serve after SIGTERM for longer than any node needs to receive its deletion, also on a busy
// machine.
func lingers(pod *corev1.Pod) {
	const seconds = 20
	pod.Spec.TerminationGracePeriodSeconds = ptr[int64](2 * seconds)
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
}

// replacement: no connection fails while the pods of a Service are replaced one by one.
func replacement(t *testing.T) {
	c := useFixtures(t)
	const label = "replaced"
	backend := func(n int, on node) *corev1.Pod {
		pod := podObject(fmt.Sprintf("backend-%d", n), on.name)
		pod.Labels = map[string]string{"name": pod.Name, label: "yes"}
		lingers(pod)
		return pod
	}
	service := serviceObject("replaced", label, "yes")
	applyForTest(t, service, backend(0, c.near), backend(1, c.far))
	waitReady(t, "backend-0", "backend-1")
	address := hostPort(serviceAddress(t, service.Name), 80)
	awaitService(t, c.a.runner, address)

	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, client := range []runner{c.a.runner, onNode(c.near.name)} {
		go func() {
			var err error
			for ctx.Err() == nil && err == nil {
				_, err = ask(client, address, "-count=100")
			}
			ended <- err
		}()
	}
	for n := range 2 {
		next := backend(n+2, c.far)
		applyForTest(t, next)
		waitReady(t, next.Name)
		mustKubectl(t, "-n", namespace, "delete", "pod", fmt.Sprintf("backend-%d", n), "--wait=false")
	}
	for n := range 2 {
		mustKubectl(t, "-n", namespace, "wait", "--for=delete", fmt.Sprintf("pod/backend-%d", n), "--timeout="+patience.String())
	}
	end()
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a connection failed while pods were replaced: %v", err)
		}
	}
}
