//go:build kubernetes

package smoke

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drain: pods leave a drained node and return; the agent stays, and has no stale endpoints.
func drain(t *testing.T) {
	c := useFixtures(t)
	t.Cleanup(func() { mustKubectl(t, "uncordon", c.far.name) })
	mustKubectl(t, "drain", c.far.name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout="+patience.String())
	waitAgentHasPods(t, c.far.name)
	if isBeeline() {
		agentOn(t, c.far.name)
	}
	mustKubectl(t, "uncordon", c.far.name)
	wantAllTalk(t, useFixtures(t))
}

// nodeRestart: after a reboot, a node's pods have a network again, and no old state is left.
func nodeRestart(t *testing.T) {
	bed := needTestbed(t, "restart nodes")
	c := useFixtures(t)
	before := map[string]int32{}
	for _, pod := range []string{c.remote.pod, c.hostFar.pod} {
		var p corev1.Pod
		mustGet(t, &p, "pod", pod)
		before[pod] = p.Status.ContainerStatuses[0].RestartCount
	}
	if err := bed.RestartNode(t.Context(), c.far.name); err != nil {
		t.Fatal(err)
	}
	waitNodeReady(t, c.far.name)
	for _, pod := range []string{c.remote.pod, c.hostFar.pod} { // the kubelet reports old pods as ready until it has checked
		waitPod(t, pod, func(p corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > before[pod]
		})
	}
	if isBeeline() {
		agentOn(t, c.far.name)
	}
	wantAllTalk(t, useFixtures(t))
	waitTracesOn(t, c.far.name)
}

// changedPodRange: if a node's pod range changes while it has pods, its agent reports pods outside it, on the node
// and in events. New pods get addresses of the new range. The old range restores everything.
func changedPodRange(t *testing.T) {
	needBeeline(t)
	needTestbed(t, "replace Nodes")
	c := useFixtures(t)
	var object corev1.Node
	mustGet(t, &object, "node", c.far.name)
	var others []string
	for _, r := range object.Spec.PodCIDRs {
		others = append(others, familyOf(r, "10.244.200.0/24", "fd00:244:0:200::/64"))
	}
	other := others[0]
	recreateNode(t, object, others)
	newcomer := podObject("newcomer", c.far.name)
	t.Cleanup(func() {
		remove(t, newcomer)
		recreateNode(t, object, object.Spec.PodCIDRs)
		waitNodeReady(t, c.far.name)
		waitAgentReady(t, c.far.name)
		wantAllTalk(t, useFixtures(t))
	})
	says := func(what, text string) error {
		for _, want := range []string{c.remote.pod, c.remote.address, other} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s: %q is missing in:\n%s", what, want, text)
			}
		}
		return nil
	}
	eventually(t, func() error {
		s, err := agentStatus(c.far.name)
		if err != nil {
			return err
		}
		return says("problems of the agent", strings.Join(s.Problems, "\n"))
	})
	eventually(t, func() error {
		output, err := kubectl("-n", namespace, "get", "events", "--field-selector", "involvedObject.name="+c.remote.pod)
		if err != nil {
			return err
		}
		return says("events of the pod", output)
	})
	apply(t, newcomer)
	address := waitReady(t, newcomer.Name)[newcomer.Name].Status.PodIP
	if a, err := netip.ParseAddr(address); err != nil || !netip.MustParsePrefix(other).Contains(a) {
		t.Errorf("a new pod has the address %s, want one of %s (%v)", address, other, err)
	}
	c.a.want(t, "echo", "tcp", hostPort(address, echoPort))
	c.a.want(t, "echo", "tcp", c.b.echo())
}

// nodeDeletion: other nodes remove the state of a deleted node; when it is back, so is its traffic.
func nodeDeletion(t *testing.T) {
	needBeeline(t)
	bed := needTestbed(t, "delete Nodes")
	c := useFixtures(t)
	var object corev1.Node
	mustGet(t, &object, "node", c.far.name)
	far, err := bed.Cluster.Node(c.far.name)
	if err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, "delete", "node", c.far.name)
	eventually(t, func() error {
		s, err := agentStatus(c.near.name)
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n.Name == c.far.name {
				return fmt.Errorf("the agent of %s still knows %s", c.near.name, c.far.name)
			}
		}
		for _, family := range []string{"-4", "-6"} {
			routes, err := onNode(c.near.name).run("ip", family, "-o", "route", "show", "proto", "190")
			if err != nil {
				return err
			}
			for _, a := range far.Addresses() {
				if strings.Contains(routes, "via "+a.String()+" ") {
					return fmt.Errorf("%s still has routes to %s: %s", c.near.name, c.far.name, routes)
				}
			}
		}
		return nil
	})
	createNode(t, object, object.Spec.PodCIDRs)
	waitNodeReady(t, c.far.name)
	waitAgentReady(t, c.far.name)
	wantAllTalk(t, useFixtures(t))
	waitTracesOn(t, c.far.name)
}

// recreateNode deletes a Node object and creates it with other pod ranges: they are immutable.
func recreateNode(t *testing.T, object corev1.Node, podRanges []string) {
	t.Helper()
	mustKubectl(t, "delete", "node", object.Name)
	createNode(t, object, podRanges)
}

// createNode creates a Node object with these pod ranges. The node's running kubelet uses it.
func createNode(t *testing.T, object corev1.Node, podRanges []string) {
	t.Helper()
	object.ObjectMeta = metav1.ObjectMeta{Name: object.Name, Labels: object.Labels, Annotations: object.Annotations}
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	object.Spec.PodCIDR, object.Spec.PodCIDRs = podRanges[0], podRanges
	object.Spec.Taints = nil
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outside().feed(string(text), "kubectl", "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// wantAllTalk checks that the fixture pods reach each other and their nodes, over the wire and on one node.
func wantAllTalk(t *testing.T, c fixtures) {
	t.Helper()
	all := []testPod{c.a, c.b, c.remote, c.hostNear, c.hostFar}
	for _, from := range all {
		var who []string
		for _, to := range all {
			if from.pod != to.pod {
				who = append(who, to.who())
			}
		}
		from.want(t, append([]string{"ask"}, who...)...)
	}
	c.a.want(t, "echo", "tcp", c.remote.echo(), "-bytes=10000000")
	c.remote.want(t, "echo", "udp", c.a.echo(), "-count=20")
}
