package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

const (
	beeline  = "../../deploy/chart/beeline"
	manifest = "../../deploy/beeline.yaml"
)

// withAdmissionPolicies is the first version of Kubernetes that has ValidatingAdmissionPolicies.
const withAdmissionPolicies = "v1.30.0"

// helm is the path of the tool.
var helm = sync.OnceValues(func() (string, error) {
	path, err := exec.Command("go", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(path)), err
})

// template runs `helm template` on a chart. Each value is KEY=VALUE.
func template(t *testing.T, chart, kubernetes string, values ...string) (string, error) {
	t.Helper()
	path, err := helm()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	args := []string{"template", "beeline", chart, "--namespace=kube-system", "--kube-version=" + kubernetes}
	for _, v := range values {
		args = append(args, "--set="+v)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &stderr)
	}
	return string(out), err
}

// render gives the chart's manifests.
func render(t *testing.T, values ...string) string {
	t.Helper()
	out, err := template(t, beeline, withAdmissionPolicies, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deploy/beeline.yaml is what Helm renders without values.
func TestManifestIsTheChartsDefault(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(text), "\n") // the first line is a comment
	if got != strings.TrimPrefix(render(t), "---\n") {
		t.Error("deploy/beeline.yaml differs from the chart's default: run make manifests")
	}
}

// digest is that of an image, without the name of its hash function.
var digest = strings.Repeat("0f", 32)

// Each value changes what it names, and nothing else breaks.
func TestValues(t *testing.T) {
	for value, want := range map[string]string{
		"image.repository=registry.example.com/beeline": "image: registry.example.com/beeline:latest\n",
		"image.tag=1.2.3":               "image: localhost/beeline:1.2.3\n",
		"image.digest=sha256:" + digest: "image: localhost/beeline:latest@sha256:" + digest + "\n",
		"flows.mode=all":                "- --flows=all\n",
		"encryption.mode=wireguard":     "- {name: keys, hostPath: {path: /var/lib/beeline, type: DirectoryOrCreate}}\n",
		"encryption.mode=ipsec":         "- {name: keys, secret: {secretName: beeline-ipsec, defaultMode: 0400}}\n",
		"flows.buffer=7":                "- --flows-buffer=7\n",
		"sizes.nat=7":                   "- --nat-max=7\n",
		"sizes.natPending=7":            "- --nat-pending-max=7\n",
		"sizes.conntrack=7":             "- --conntrack-max=7\n",
		"image.pullPolicy=Always":       "imagePullPolicy: Always\n",
		"image.pullSecrets={a,b}":       "imagePullSecrets:\n        - name: a\n        - name: b\n",
		"routing=kernel":                "- --routing=kernel\n",
		"tunnel=vxlan":                  "- --tunnel=vxlan\n",
		"tunnelPort=8472":               "- --tunnel-port=8472\n",
		"services=none":                 "- --services=none\n",
		"masquerade=false":              "- --masquerade=false\n",
		"mtu=1400":                      "- --mtu=1400\n",
		"uplink=eth1":                   "- --uplink=eth1\n",
		"apiServer.host=10.0.0.1":       `{name: KUBERNETES_SERVICE_HOST, value: "10.0.0.1"}`,
		"apiServer.port=6443":           `{name: KUBERNETES_SERVICE_PORT, value: "6443"}`,
		"metrics.host=0.0.0.0":          "- --metrics-address=0.0.0.0:9965\n",
		"metrics.port=9999":             "httpGet: {host: 127.0.0.1, port: 9999, path: /readyz, scheme: HTTP}\n",
		"log.level=debug":               "- --log-level=debug\n",
		"log.format=json":               "- --log-format=json\n",
		"paths.cniConf=/a":              "{name: cni-conf, hostPath: {path: /a,",
		"paths.cniBin=/a":               "{name: cni-bin, hostPath: {path: /a,",
		"paths.command=/a":              "{name: command, hostPath: {path: /a,",
		"paths.netns=/a":                "{name: netns, hostPath: {path: /a,",
		"resources.limits.memory=1Gi":   "memory: 1Gi\n",
		"priorityClassName=x":           "priorityClassName: x\n",
		"nodeSelector.a=b":              "a: b\n",
		"updateStrategy.type=OnDelete":  "type: OnDelete\n",
		"podAnnotations.a=b":            "annotations:\n        a: b\n",
	} {
		if got := render(t, value); !strings.Contains(got, want) {
			t.Errorf("%s does not give %q", value, want)
		} else if strings.Contains(render(t), want) {
			t.Errorf("%s: the default is the same", value)
		}
	}
}

// By default, the chart contains the policy if the API server supports its kind.
func TestAdmissionPolicyByVersion(t *testing.T) {
	const kind = "kind: ValidatingAdmissionPolicy\n"
	for _, c := range []struct {
		kubernetes string
		values     []string
		want       bool
	}{
		{"v1.29.15", nil, false},
		{"v1.30.0", nil, true},
		{"v1.36.2-vendor.1", nil, true},
		{"v1.29.15", []string{"admissionPolicy=true"}, true},
		{"v1.30.0", []string{"admissionPolicy=false"}, false},
	} {
		out, err := template(t, beeline, c.kubernetes, c.values...)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out, kind); got != c.want {
			t.Errorf("%s %v: a policy: %t, want %t", c.kubernetes, c.values, got, c.want)
		}
	}
	if _, err := template(t, beeline, "new"); err == nil {
		t.Error("a version that is none is accepted")
	}
}

// The plugin refers to a pod's namespace by its path on the node, so the agent needs the same path.
func TestNetnsPath(t *testing.T) {
	if got := render(t, "paths.netns=/a"); !strings.Contains(got, "{name: netns, mountPath: /a,") {
		t.Errorf("the namespaces have another path:\n%s", got)
	}
}

func TestSchemaRejects(t *testing.T) {
	for _, value := range []string{
		"routing=magic", "tunnel=magic", "tunnelPort=0", "encryption.mode=magic", "encryption.secret=", "services=magic", "masquerade=maybe", "mtu=100", "uplink=", "metrics.host=10.0.0.1",
		"metrics.port=0", "admissionPolicy=maybe", "log.level=loud", "log.format=xml", "paths.cniBin=bin", "image.repository=", "image.tag=-", "image.digest=sha256:1", "image.pullPolicy=Perhaps", "nosuch=1", "image.name=x",
	} {
		if _, err := template(t, beeline, withAdmissionPolicies, value); err == nil {
			t.Errorf("%s is accepted", value)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, args := range [][]string{{"/nonexistent"}, {beeline, "a[x]=1"}, {beeline, "a"}} {
		if _, err := template(t, args[0], withAdmissionPolicies, args[1:]...); err == nil {
			t.Errorf("helm accepts %v", args)
		}
	}
}

func TestLint(t *testing.T) {
	path, err := helm()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	if out, err := exec.Command(path, "lint", "--strict", beeline).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
}
