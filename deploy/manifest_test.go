package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/internal/install"
)

// object decodes the one object of that kind in a manifest, strictly.
func object[T any](t *testing.T, file, kind string) (decoded T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, document := range strings.Split(string(text), "\n---\n") {
		var header struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &header); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if header.Kind != kind {
			continue
		}
		found++
		if err := yaml.UnmarshalStrict([]byte(document), &decoded); err != nil {
			t.Fatalf("%s: %s: %v", file, kind, err)
		}
	}
	if found != 1 {
		t.Fatalf("%s has %d of kind %s", file, found, kind)
	}
	return decoded
}

// The agent has the rights that its code uses, no more and no fewer.
func TestRights(t *testing.T) {
	role := object[rbacv1.ClusterRole](t, "beeline.yaml", "ClusterRole")
	rights := func(group, resource string, verbs []string) (all []string) {
		for _, verb := range verbs {
			all = append(all, fmt.Sprintf("%s %s.%s", verb, resource, group))
		}
		return all
	}
	var got, want []string
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				got = append(got, rights(group, resource, r.Verbs)...)
			}
		}
		if len(r.ResourceNames) > 0 || len(r.NonResourceURLs) > 0 {
			t.Errorf("rule %v names objects", r)
		}
	}
	for _, r := range apiserver.Rules() {
		want = append(want, rights(r.Group, r.Resource, r.Verbs)...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-needed +given):\n%s", diff)
	}

	account := object[corev1.ServiceAccount](t, "beeline.yaml", "ServiceAccount")
	binding := object[rbacv1.ClusterRoleBinding](t, "beeline.yaml", "ClusterRoleBinding")
	agent := object[appsv1.DaemonSet](t, "beeline.yaml", "DaemonSet")
	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != account.Name ||
		binding.Subjects[0].Namespace != account.Namespace || agent.Spec.Template.Spec.ServiceAccountName != account.Name || agent.Namespace != account.Namespace {
		t.Errorf("account %s/%s, binding %+v, used %s/%s", account.Namespace, account.Name, binding, agent.Namespace, agent.Spec.Template.Spec.ServiceAccountName)
	}
}

// Each directory in the agent's arguments is a directory of the node.
func TestDirectories(t *testing.T) {
	pod := object[appsv1.DaemonSet](t, "beeline.yaml", "DaemonSet").Spec.Template.Spec
	want := map[string]string{
		"--cni-conf-dir": "/etc/cni/net.d", "--cni-bin-dir": "/opt/cni/bin", "--command-dir": "/opt/beeline",
		// Where the agent looks without being told.
		"state": "/run/beeline", "bpffs": "/sys/fs/bpf", "netns": "/run/netns",
	}
	inside := map[string]string{"state": "/run/beeline", "bpffs": "/sys/fs/bpf", "netns": "/run/netns"}
	for _, arg := range pod.Containers[0].Args {
		if flag, value, ok := strings.Cut(arg, "="); ok && want[flag] != "" {
			inside[flag] = value
		}
	}
	got := map[string]string{}
	for what, path := range inside {
		for _, m := range pod.Containers[0].VolumeMounts {
			for _, v := range pod.Volumes {
				if m.MountPath == path && v.Name == m.Name && v.HostPath != nil {
					got[what] = v.HostPath.Path
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

// The scheduler reserves the agent's ports, and the kubelet probes exactly these, first for the start.
func TestPortsAndProbes(t *testing.T) {
	agent := object[appsv1.DaemonSet](t, "beeline.yaml", "DaemonSet").Spec.Template.Spec.Containers[0]
	declared := map[string]int32{}
	for _, p := range agent.Ports {
		if p.HostPort != p.ContainerPort || p.HostIP != "" || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			t.Errorf("port %+v is not taken at all addresses", p)
		}
		declared[p.Name] = p.HostPort
	}
	want := map[string]int32{"metrics": 9965, "healthz": 10256}
	if diff := cmp.Diff(want, declared); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	for _, arg := range []string{fmt.Sprintf("--metrics-address=127.0.0.1:%d", want["metrics"]), fmt.Sprintf("--healthz-address=0.0.0.0:%d", want["healthz"])} {
		if !slices.Contains(agent.Args, arg) {
			t.Errorf("no argument %s", arg)
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": agent.StartupProbe, "/readyz": agent.ReadinessProbe, "/healthz ": agent.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != strings.TrimSpace(path) || probe.HTTPGet.Port.IntVal != want["metrics"] ||
			probe.HTTPGet.Host != "127.0.0.1" || probe.HTTPGet.Scheme != corev1.URISchemeHTTP {
			t.Errorf("%s: probe %+v", path, probe)
		}
	}
}

// Both manifests run the image that `make image` makes, on every node, before anything else has a network.
func TestPodsRunEverywhere(t *testing.T) {
	for _, file := range []string{"beeline.yaml", "uninstall.yaml"} {
		set := object[appsv1.DaemonSet](t, file, "DaemonSet")
		pod := set.Spec.Template.Spec
		if !pod.HostNetwork || pod.PriorityClassName != "system-node-critical" || pod.DNSPolicy != corev1.DNSDefault {
			t.Errorf("%s: host network %v, priority %q, DNS %s", file, pod.HostNetwork, pod.PriorityClassName, pod.DNSPolicy)
		}
		if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
			t.Errorf("%s: tolerations (-want +got):\n%s", file, diff)
		}
		if diff := cmp.Diff(set.Spec.Selector.MatchLabels, set.Spec.Template.Labels); diff != "" {
			t.Errorf("%s: selector and labels differ:\n%s", file, diff)
		}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			if c.Image != "localhost/beeline:latest" || c.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("%s: container %s is %s, pulled %s", file, c.Name, c.Image, c.ImagePullPolicy)
			}
			if c.Resources.Limits != nil {
				t.Errorf("%s: container %s is limited: %v", file, c.Name, c.Resources.Limits)
			}
		}
	}
	update := object[appsv1.DaemonSet](t, "beeline.yaml", "DaemonSet").Spec.UpdateStrategy
	if update.Type != appsv1.RollingUpdateDaemonSetStrategyType || update.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("update strategy %+v", update)
	}
}

// The documentation names the files that the agent installs. Its page of the chart's values is made from them (docs/reference_test.go).
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{install.Conflist, install.Plugin, install.PortMap} {
		if !strings.Contains(string(text), name) {
			t.Errorf("docs/install.md does not name %s", name)
		}
	}
}
