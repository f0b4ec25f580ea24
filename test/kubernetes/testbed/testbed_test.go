package testbed

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// TestCommandsAreUndisturbed checks that commands have no proxy variables, and the order of PATH.
func TestCommandsAreUndisturbed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example")
	t.Setenv("no_proxy", "x")
	t.Setenv("PATH", "/usr/bin")
	b := open(record{Options: plan.Options{}.Defaults(), Binaries: []string{"/cache/a", "/cache/b"}})
	cmd := b.Command(t.Context(), "kubectl", "version")
	environ := map[string]string{}
	for _, variable := range cmd.Env {
		name, value, _ := strings.Cut(variable, "=")
		environ[name] = value
	}
	for _, name := range []string{"HTTPS_PROXY", "no_proxy"} {
		if _, ok := environ[name]; ok {
			t.Errorf("%s is passed on", name)
		}
	}
	if environ["PATH"] != "/cache/a:/cache/b:/usr/bin" || environ["KUBECONFIG"] != plan.Kubeconfig {
		t.Errorf("environment: %v", environ)
	}
	if got := strings.Join(cmd.Args[1:], " "); got != "--net=/run/netns/blk-cp -- kubectl version" {
		t.Errorf("arguments: %s", got)
	}
}

// TestManifestFits checks fitManifest with the project's manifest.
func TestManifestFits(t *testing.T) {
	manifest, err := os.ReadFile("../../../deploy/beeline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for proxy, want := range map[string][2]string{
		plan.ProxyNone:     {"\n            - run\n            - --api-server=https://192.168.60.1:6443\n", "--services=kube-proxy"},
		plan.ProxyIPTables: {"\n            - --services=kube-proxy\n", "--api-server"},
	} {
		fitted, err := fitManifest(plan.New(plan.Options{Proxy: proxy}.Defaults()), manifest)
		if err != nil {
			t.Fatal(err)
		}
		if want := "\n            - --external-ips=198.51.100.0/24,203.0.113.0/24,2001:db8::/32\n"; !strings.Contains(string(fitted), want) {
			t.Errorf("proxy %s: want %q:\n%s", proxy, want, fitted)
		}
		if !strings.Contains(string(fitted), want[0]) || strings.Contains(string(fitted), want[1]) {
			t.Errorf("proxy %s: want %q and no %q:\n%s", proxy, want[0], want[1], fitted)
		}
	}
	if _, err := fitManifest(plan.New(plan.Options{}.Defaults()), []byte("kind: DaemonSet")); err == nil {
		t.Error("a manifest without an agent is accepted")
	}
}

func TestNodeCommandListsTheNodes(t *testing.T) {
	b := open(record{Options: plan.Options{}.Defaults()})
	if _, err := b.NodeCommand(t.Context(), "cp", "true"); err == nil {
		t.Error("the control plane counts as a node")
	}
}

// TestKilledClusterIsNotUp checks that a killed cluster does not prevent another one, and that a cluster in use does,
// also with stopped nodes.
func TestKilledClusterIsNotUp(t *testing.T) {
	options := plan.Options{}.Defaults()
	for name, c := range map[string]struct {
		ready   bool
		running string
		want    bool
	}{
		"in use":         {ready: true, running: "n2", want: true},
		"killed":         {ready: true},
		"never finished": {running: "n1"},
	} {
		up, err := record{Options: options, Ready: c.ready}.up(func(machine string) (bool, error) { return machine == c.running, nil })
		if err != nil || up != c.want {
			t.Errorf("%s: up: %v (error %v), want %v", name, up, err, c.want)
		}
	}
	unknown := errors.New("no cgroup")
	if _, err := (record{Options: options, Ready: true}).up(func(string) (bool, error) { return false, unknown }); !errors.Is(err, unknown) {
		t.Errorf("error %v, want %v", err, unknown)
	}
}
