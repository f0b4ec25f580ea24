package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// everything is one object of each kind, with all that is kept of it.
const everything = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-0, labels: {tier: front, app: web}}
spec:
  nodeName: n1
  initContainers:
  - {name: setup, ports: [{name: gone, containerPort: 1}]}
  - {name: sidecar, restartPolicy: Always, ports: [{name: side, containerPort: 15001}]}
  containers:
  - {name: web, ports: [{name: http, containerPort: 8080}, {containerPort: 9}, {name: dns, containerPort: 53, protocol: UDP}]}
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: 'fd00::2'}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec:
  type: LoadBalancer
  allocateLoadBalancerNodePorts: false
  clusterIP: 10.96.0.9
  clusterIPs: [10.96.0.9, 'fd00:96::9']
  externalIPs: [198.51.100.9]
  loadBalancerSourceRanges: [' 203.0.113.7/24']
  externalTrafficPolicy: Local
  internalTrafficPolicy: Cluster
  healthCheckNodePort: 30100
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: http, nodePort: 30080}, {name: dns, port: 53, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}, {hostname: lb.example}, {ip: 198.51.100.81, ipMode: Proxy}]}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: headless}
spec: {clusterIP: None}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: others, labels: {service.kubernetes.io/service-proxy-name: mesh}}
spec: {clusterIP: 10.96.0.10}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-x, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: all}]
endpoints:
- {addresses: [10.1.1.2], nodeName: n1, hints: {forZones: [{name: z1}]}}
- {addresses: [10.1.2.2], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.1.2.3], conditions: {ready: false}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: web}
spec:
  podSelector: {matchLabels: {b: '2', a: '1'}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - ipBlock: {cidr: 10.0.0.0/8, except: [10.9.0.0/16]}
    - {namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [bad]}]}}
    ports: [{port: http}, {protocol: UDP, port: 5000, endPort: 5010}, {protocol: SCTP}]
  - {}
  egress: [{}]
`

func TestEveryKindOfManifest(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(everything), 0o600))
	r := run(t, dir, never)
	got := r.expect()
	ip := netip.MustParseAddr
	want := &Snapshot{
		Namespaces: []*Namespace{{Name: "shop", Labels: NewLabels(map[string]string{"team": "a", "kubernetes.io/metadata.name": "shop"})}},
		Pods: ListOf(&Pod{
			Namespace: "shop", Name: "web-0", Node: "n1", Addresses: []netip.Addr{ip("10.1.1.2"), ip("fd00::2")},
			Labels: NewLabels(map[string]string{"app": "web", "tier": "front"}),
			Ports:  []ContainerPort{{"http", TCP, 8080}, {"dns", UDP, 53}, {"side", TCP, 15001}},
		}),
		Services: []*Service{{
			Namespace: "shop", Name: "web", ClusterIPs: []netip.Addr{ip("10.96.0.9"), ip("fd00:96::9")}, ExternalIPs: []netip.Addr{ip("198.51.100.9")},
			LoadBalancerIPs: []netip.Addr{ip("198.51.100.80")}, LoadBalancerSources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
			Ports:    []ServicePort{{"http", TCP, 80, 30080}, {"dns", UDP, 53, 0}},
			Affinity: 3 * time.Hour, ExternalLocal: true, HealthCheckNodePort: 30100,
		}},
		EndpointSlices: ListOf(&EndpointSlice{
			Namespace: "shop", Name: "web-x", Service: "web", Ports: []EndpointPort{{"http", TCP, 8080}},
			Endpoints: []Endpoint{
				{Address: ip("10.1.1.2"), Ready: true, Serving: true, Node: "n1", Hints: &EndpointHints{ForZones: []string{"z1"}}},
				{Address: ip("10.1.2.2"), Serving: true, Terminating: true},
				{Address: ip("10.1.2.3")},
			},
		}),
		NetworkPolicies: []*NetworkPolicy{{
			Namespace: "shop", Name: "web", IsolatesIngress: true,
			Pods: Selector{[]Requirement{{"a", metav1.LabelSelectorOpIn, []string{"1"}}, {"b", metav1.LabelSelectorOpIn, []string{"2"}}}},
			Ingress: []PolicyRule{{
				Peers: []PolicyPeer{
					{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}},
					{Namespaces: &Selector{}, Pods: &Selector{[]Requirement{{"app", metav1.LabelSelectorOpNotIn, []string{"bad"}}}}},
				},
				Ports: []PolicyPort{{Protocol: TCP, Name: "http"}, {UDP, 5000, 5010, ""}, {Protocol: SCTP}},
			}, {}},
		}},
	}
	same := cmp.Options{addrs, cmpopts.IgnoreFields(Snapshot{}, "Since"), cmpopts.EquateComparable(Labels{}), cmpopts.EquateEmpty(), asSlices}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	r.expectProblem("")

	put(t, filepath.Join(dir, "more.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: late}\n")
	var after *Snapshot
	for after == nil || after.Pods.Len() != 2 {
		after = <-r.snapshots
	}
	if pods := after.Pods.Slice(); pods[1].Name != "web-0" || pods[1] != got.Pods.Slice()[0] || pods[0].Namespace != "default" {
		t.Errorf("pods are %+v", pods)
	}
	if !Same(got.Services, after.Services) || got.Pods.Same(after.Pods) {
		t.Error("services are another list, or pods the same")
	}
	put(t, filepath.Join(dir, "twice.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: late}\n")
	r.expectProblem("twice.yaml:3: Pod default/late: has the same name as Pod default/late (" + filepath.Join(dir, "more.yaml") + ":3)")
}

// Errors name the line and the field. A file with an invalid object is rejected as a whole, except for
// NetworkPolicies, which isolate their pods.
func TestWrongObjects(t *testing.T) {
	for _, c := range []struct{ old, wrong, want string }{
		{"{ip: 'fd00::2'}", "{ip: 10.1.1.3}", "Pod shop/web-0: status.podIPs[1].ip: 10.1.1.3 is of the same family as 10.1.1.2"},
		{"containerPort: 8080", "containerPort: 80800", "Pod shop/web-0: spec.containers[0].ports[0].containerPort: 80800 is not a port"},
		{"name: web-0", "name: Web", "Pod shop/Web: metadata.name: "},
		{"{namespace: shop, name: web-0,", "{namespace: s_p, name: web-0,", "Pod s_p/web-0: metadata.namespace: "},
		{"nodeName: n1\n  init", "nodename: n1\n  init", `Pod shop/web-0: unknown field "spec.nodename"`},
		{"nodePort: 30080", "nodePort: 99999", "Service shop/web: spec.ports[0].nodePort: 99999 is not a port"},
		{"port: 80, targetPort", "port: 0, targetPort", "Service shop/web: spec.ports[0].port: 0 is not a port"},
		{"healthCheckNodePort: 30100", "healthCheckNodePort: 70000", "Service shop/web: spec.healthCheckNodePort: 70000 is not a port"},
		{"{name: http, port: 8080}, {name: all}", "{name: http, port: 0}, {name: all}", "EndpointSlice shop/web-x: ports[0].port: 0 is not a port"},
		{"203.0.113.7/24", "203.0.113.7/33", `Service shop/web: spec.loadBalancerSourceRanges[0]: "203.0.113.7/33" is not a CIDR`},
		{"port: 53, protocol: UDP", "port: 53, protocol: ICMP", `Service shop/web: spec.ports[1].protocol: "ICMP" is none of TCP, UDP and SCTP`},
		{"addresses: [10.1.2.3]", "addresses: ['fd00::3']", "EndpointSlice shop/web-x: endpoints[2].addresses[0]: fd00::3 is not of the slice's address type, IPv4"},
		{"addresses: [10.1.2.3]", "addresses: []", "EndpointSlice shop/web-x: endpoints[2].addresses: missing"},
		{"except: [10.9.0.0/16]", "except: [11.9.0.0/16]", "NetworkPolicy shop/web: spec.ingress[0].from[0].ipBlock.except[0]: 11.9.0.0/16 is not a part of 10.0.0.0/8"},
		{"endPort: 5010", "endPort: 4999", "NetworkPolicy shop/web: spec.ingress[0].ports[1].endPort: 4999 is less than the port, 5000"},
		{"policyTypes: [Ingress]", "policyTypes: [Inbound]", `NetworkPolicy shop/web: spec.policyTypes[0]: "Inbound" is neither Ingress nor Egress`},
		{"operator: NotIn", "operator: Like", `NetworkPolicy shop/web: spec.ingress[0].from[1].podSelector.matchExpressions[0].operator: "Like" is none of`},
		{"cidr: 10.0.0.0/8", "cidr: 10/8", "NetworkPolicy shop/web: spec.ingress[0].from[0].ipBlock.cidr: "},
		{"namespaceSelector: {}, podSelector", "ipBlock: {cidr: 10.0.0.0/8}, podSelector", "NetworkPolicy shop/web: spec.ingress[0].from[1]: has both an ipBlock and a selector"},
	} {
		text := strings.Replace(everything, c.old, c.wrong, 1)
		if text == everything {
			t.Fatalf("%q is not in the fixture", c.old)
		}
		m, errs := parse("f.yaml", []byte(text))
		if ofPolicy := strings.HasPrefix(c.want, "NetworkPolicy"); m != nil && ofPolicy {
			errs = m.complaints
		} else if ofPolicy {
			t.Errorf("with %s: the file is refused", c.wrong)
		}
		if m != nil && len(m.complaints) == 0 || len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("with %s: errors are %v, want %s", c.wrong, errs, c.want)
			continue
		}
		before, _, _ := strings.Cut(text, c.wrong)
		if line := strings.Count(before, "\n") + 1; !strings.HasPrefix(errs[0].Error(), "f.yaml:") || !nearLine(errs[0].Error(), line) {
			t.Errorf("%v: want line %d", errs[0], line)
		}
	}
}

// nearLine reports whether an error is at a line, or at that of the key above it.
func nearLine(text string, line int) bool {
	for _, l := range []int{line, line + 1, line - 1} {
		if strings.HasPrefix(text, fmt.Sprintf("f.yaml:%d:", l)) {
			return true
		}
	}
	return false
}

func TestPolicyTypesThatAreLeftOut(t *testing.T) {
	const policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}"
	for text, want := range map[string]NetworkPolicy{
		policy + "}":               {IsolatesIngress: true},
		policy + ", egress: [{}]}": {IsolatesIngress: true, IsolatesEgress: true, Egress: []PolicyRule{{}}},
		policy + ", policyTypes: [Egress], ingress: [{}]}": {IsolatesEgress: true},
	} {
		m, errs := parse("f.yaml", []byte(text))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		want.Namespace, want.Name = "default", "p"
		if diff := cmp.Diff(&want, m.objects[0].object, addrs, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestLabels(t *testing.T) {
	a := NewLabels(map[string]string{"app": "web", "empty": "", "z": "1"})
	if b := NewLabels(map[string]string{"z": "1", "app": "web", "empty": ""}); a != b {
		t.Error("the same labels are two sets")
	}
	if NewLabels(nil) != (Labels{}) || a == NewLabels(map[string]string{"app": "web", "z": "1"}) {
		t.Error("sets are mixed up")
	}
	if got, want := a.String(), "app=web,empty=,z=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for key, want := range map[string]string{"app": "web", "empty": "", "z": "1"} {
		if got, ok := a.Get(key); !ok || got != want {
			t.Errorf("%s is %q, %t", key, got, ok)
		}
	}
	for _, key := range []string{"web", "", "1"} {
		if got, ok := a.Get(key); ok {
			t.Errorf("%q is %q", key, got)
		}
	}
	if got, ok := (Labels{}).Get("app"); ok {
		t.Errorf("no labels have %q", got)
	}
}

// Unchanged pods are the same list, whatever else changes in the directory.
func TestUnchangedPodsAreTheSameList(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "pod.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
	r := run(t, dir, never)
	before := r.expect()
	put(t, filepath.Join(dir, "namespace.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n")
	after := before
	for len(after.Namespaces) == 0 {
		after = <-r.snapshots
	}
	if before.Pods.Len() != 1 || !before.Pods.Same(after.Pods) {
		t.Errorf("%d pods became another list of %d", before.Pods.Len(), after.Pods.Len())
	}
}

// What a pod says about its device is kept, and not more of it than an error needs.
func TestDeviceOfPod(t *testing.T) {
	class := "kata-qemu"
	for wish, want := range map[string]string{"": "", "netkit": "netkit", "tap": "tap", strings.Repeat("ä", 1<<16): strings.Repeat("ä", deviceMax/2)} {
		full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{v1alpha1.AnnotationDevice: wish}}}
		full.Spec.RuntimeClassName = &class
		if p, wrong := reducePod(full); p.Device != want || p.RuntimeClass != class || len(wrong) > 0 {
			t.Errorf("%.20q: %q, %q, %v", wish, p.Device, p.RuntimeClass, wrong)
		}
	}
}
