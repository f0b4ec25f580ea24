package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
)

// defaults are the options of a person who gives none.
var defaults = Options{Image: DefaultImage, HostPorts: DefaultHostPorts}

func TestChooseNodes(t *testing.T) {
	tainted, cordoned, down := newNode("a-tainted"), newNode("a-cordoned"), newNode("a-down")
	tainted.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	cordoned.Spec.Unschedulable = true
	down.Status.Conditions[0].Status = corev1.ConditionUnknown
	preferred := newNode("b")
	preferred.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
	all := []corev1.Node{newNode("d"), tainted, cordoned, down, newNode("c"), preferred}
	for _, test := range []struct {
		nodes          []corev1.Node
		client, server string // asked for
		want, fails    string
	}{
		{all, "", "", "b c", ""},
		{all, "c", "", "c b", ""},
		{all, "", "b", "c b", ""},
		{all, "d", "d", "d d", ""},
		{all, "a-tainted", "", "a-tainted b", ""}, // who names a node has reasons
		{all, "", "a-cordoned", "b a-cordoned", ""},
		{[]corev1.Node{newNode("only")}, "", "", "only only", ""},
		{all, "a-down", "", "", "node a-down is not ready"},
		{all, "missing", "", "", "a-cordoned, a-down, a-tainted, b, c, d"},
		{[]corev1.Node{tainted, cordoned, down}, "", "", "", "a-tainted has the taint node-role.kubernetes.io/control-plane:NoSchedule"},
		{nil, "", "", "", "the cluster has none"},
	} {
		c, s, err := chooseNodes(test.nodes, test.client, test.server)
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("client %q, server %q: %v, want %q", test.client, test.server, err, test.fails)
			}
			continue
		}
		if got := c.Name + " " + s.Name; err != nil || got != test.want {
			t.Errorf("client %q, server %q: %q, %v; want %q", test.client, test.server, got, err, test.want)
		}
	}
}

func TestAddressesAreOfTheFamily(t *testing.T) {
	n := newNode("n", "not an address", "192.0.2.1", "2001:db8::1")
	for six, want := range map[bool]string{false: "192.0.2.1", true: "2001:db8::1"} {
		if got, err := nodeIP(n, six); err != nil || got.String() != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	if _, err := nodeIP(newNode("n", "192.0.2.1"), true); err == nil || !strings.Contains(err.Error(), "IPv6") {
		t.Errorf("no IPv6: %v", err)
	}
	pod := corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}}
	for six, want := range map[bool]string{false: "10.0.0.1", true: "fd00::1"} {
		if got, err := podIP(pod, six); err != nil || got.String() != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	if _, err := podIP(corev1.Pod{}, false); err == nil {
		t.Error("a pod without addresses has one")
	}
}

// A quick run needs few ports; a tool connects to the port that its server listens on.
func TestPorts(t *testing.T) {
	quick, err := New(round.Options{}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	p := newPorts(quick.Cells)
	if n := len(p.request()); n != 7 {
		t.Errorf("%d ports of a Service in a quick run, want 7", n)
	}
	full, err := New(round.Options{Full: true}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	p = newPorts(full.Cells)
	request := p.request()
	names := map[string]bool{}
	for i := range request {
		if names[request[i].Name] || request[i].NodePort != 0 {
			t.Errorf("port %+v", request[i])
		}
		names[request[i].Name] = true
		request[i].NodePort = 30000 + request[i].Port*2
	}
	numbers, err := p.given(request)
	if err != nil {
		t.Fatal(err)
	}
	end := p.assign(numbers)
	tools := end.Ports
	got := slices.Concat([]int{end.Control, tools.Netperf, tools.Sockperf, tools.Redis}, tools.HTTP, tools.Iperf, tools.Data)
	if len(got) != len(p) || len(tools.Iperf) != 4 || len(tools.Data) != 4 || len(tools.HTTP) != leastHTTP || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("%d, %+v of %d ports", end.Control, tools, len(p))
	}
	for _, port := range p.service(numbers, true) {
		if port.Port != port.NodePort || int32(port.TargetPort.IntValue()) != port.Port {
			t.Errorf("not one number: %+v", port)
		}
	}
	request[1].NodePort++ // the control port's UDP
	if _, err := p.given(request); err == nil || !strings.Contains(err.Error(), "different") {
		t.Errorf("TCP and UDP apart: %v", err)
	}
	request[0].NodePort = 0
	if _, err := p.given(request); err == nil {
		t.Error("no NodePort, and no error")
	}
}

func TestPlans(t *testing.T) {
	for name, c := range map[string]round.Options{
		"network": {Networks: []string{"beeline"}}, "workload": {Workloads: []string{"nothing"}},
		"placement": {Placements: []result.Placement{result.Spread}}, "path": {Paths: []result.Path{"nowhere"}},
	} {
		c.Full = true
		if _, err := New(c, defaults); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	p, err := New(round.Options{Networks: []string{"pod"}, Paths: []result.Path{result.SameNode}, Workloads: []string{"tcp_rr"}}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.roles(), p.rolesWithService(), slices.Contains(p.Names(), stats.Baseline)); got != "[client near] [] false" {
		t.Errorf("%s", got)
	}
	p, err = New(round.Options{}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.roles(), p.rolesWithService(), slices.Contains(p.Names(), stats.Baseline)); got != "[node-client node-far node-near client far near] [far near] true" {
		t.Errorf("%s", got)
	}
	if err := p.Validate(); err != nil || p.Estimate() > 5*time.Minute || p.Limit() < p.Estimate() {
		t.Errorf("%v, takes %v, at most %v", err, p.Estimate(), p.Limit())
	}
	p.HostPorts = 65534
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "65534") {
		t.Errorf("ports beyond the last: %v", err)
	}
	p.networks = nil
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "nodeport") {
		t.Errorf("no networks: %v", err)
	}
}

func TestDetectNetwork(t *testing.T) {
	daemonSet := func(name string) appsv1.DaemonSet {
		d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry/" + name + ":v1"}}
		return d
	}
	annotated, reported := newNode("n"), newNode("n")
	annotated.Annotations = map[string]string{"projectcalico.org/IPv4Address": "x", "flannel.alpha.coreos.com/backend-type": "vxlan"}
	reported.Status.Conditions = append(reported.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Reason: "BeelineReady"})
	for _, test := range []struct {
		daemonSets []appsv1.DaemonSet
		node       corev1.Node
		devices    []string
		want       string
		evidence   string
	}{
		{[]appsv1.DaemonSet{daemonSet("kube-proxy"), daemonSet("cilium")}, newNode("n"), []string{"lo", "cilium_host"}, "Cilium",
			"DaemonSet kube-system/cilium of registry/cilium:v1, device cilium_host"},
		{nil, annotated, nil, "Calico and Flannel", "annotations projectcalico.org/…, annotations flannel.alpha.coreos.com/…"},
		{nil, reported, []string{"beeline-vxlan"}, "Beeline", "condition NetworkUnavailable with reason BeelineReady, device beeline-vxlan"},
		{nil, newNode("n"), []string{"cali1", "cali2"}, "Calico", "device cali1"},
		{nil, newNode("n"), []string{"cni0", "eth0"}, "bridge", "device cni0 and no trace of a network that is known"},
		{nil, newNode("n"), []string{"cni0", "flannel.1"}, "Flannel", "device flannel.1"},
		{[]appsv1.DaemonSet{daemonSet("cilium-node-init")}, newNode("n"), []string{"eth0"}, unknown, ""},
	} {
		got, evidence := detectNetwork(test.daemonSets, []corev1.Node{test.node, test.node}, test.devices)
		if got != test.want || strings.Join(evidence, ", ") != test.evidence {
			t.Errorf("%q by %q, want %q by %q", got, evidence, test.want, test.evidence)
		}
	}
}

func TestDetectProxy(t *testing.T) {
	there := []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"}}}
	for _, test := range []struct {
		said       string
		daemonSets []appsv1.DaemonSet
		config     map[string]string
		mode, by   string
	}{
		{"nftables", there, map[string]string{"c": "mode: ipvs"}, "nftables", "kube-proxy on node n"},
		{"", there, map[string]string{"c": "apiVersion: v1\nmode: ipvs\n"}, "ipvs", "ConfigMap"},
		{"", nil, map[string]string{"c": `mode: ""`}, "iptables", "ConfigMap"},
		{"", there, nil, unknown, "refused"},
		{"", nil, nil, "none", "refused"},
	} {
		if mode, by := detectProxy("n", test.said, "refused", test.daemonSets, test.config); mode != test.mode || !strings.Contains(by, test.by) {
			t.Errorf("%+v: %q by %q", test, mode, by)
		}
	}
}

// Pods ask for nothing and may nothing, wherever they run.
func TestPods(t *testing.T) {
	o := Options{Image: "i", PullSecret: "s"}
	for _, r := range order {
		p := newPod("ns", "run", r, "n", o, time.Hour)
		c := p.Spec.Containers[0]
		if p.Spec.HostNetwork != r.hosted() || p.Spec.NodeName != "n" || *p.Spec.ActiveDeadlineSeconds != 3600 || len(c.Resources.Requests) != 0 ||
			!*p.Spec.SecurityContext.RunAsNonRoot || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			*p.Spec.AutomountServiceAccountToken || p.Spec.Tolerations[0].Operator != corev1.TolerationOpExists || p.Spec.ImagePullSecrets[0].Name != "s" {
			t.Errorf("%s: %+v", r, p.Spec)
		}
		s := newService("ns", "run", r, true, ports{})
		for key, value := range s.Spec.Selector {
			if p.Labels[key] != value {
				t.Errorf("the Service of %s does not select its pod: %v, %v", r, s.Spec.Selector, p.Labels)
			}
		}
		if s.Spec.IPFamilies[0] != corev1.IPv6Protocol {
			t.Errorf("%s: %v", r, s.Spec.IPFamilies)
		}
	}
	n := newNamespace("run")
	if n.Labels["pod-security.kubernetes.io/enforce"] != "privileged" || n.Labels[labelRun] != "run" {
		t.Errorf("%v", n.Labels)
	}
	if a, b := newRunName(), newRunName(); a == b || len(a) != 8 {
		t.Errorf("%q, %q", a, b)
	}
}

func TestPodsThatDoNotRun(t *testing.T) {
	waiting := func(reason string) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}}}}}
	}
	for reason, want := range map[string]string{"ImagePullBackOff": "make image-bench", "RunContainerError": "does not start", "ContainerCreating": ""} {
		err := hopeless(waiting(reason), "i")
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", reason, err)
		}
		if got := notRunning(waiting(reason)); !strings.Contains(got, reason) {
			t.Errorf("%s: waits for %q", reason, got)
		}
	}
	if err := hopeless(corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodePorts"}}, "i"); err == nil || !strings.Contains(err.Error(), "NodePorts") {
		t.Errorf("a pod that failed: %v", err)
	}
	if got := notRunning(corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}); got != "" {
		t.Errorf("a pod that runs waits: %q", got)
	}
}
