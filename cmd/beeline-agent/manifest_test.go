package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// args returns the arguments of the first init container, or else of the first container, of the DaemonSet in a manifest.
func args(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.DaemonSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind == "DaemonSet" {
			pod := set.Spec.Template.Spec
			return append(pod.InitContainers, pod.Containers...)[0].Args
		}
	}
	t.Fatalf("%s has no DaemonSet", file)
	return nil
}

// The manifest sets only the node's name and the installation directories; everything else is the agent's default.
func TestManifestHasTheDefaults(t *testing.T) {
	all := args(t, "../../deploy/beeline.yaml")
	cmd := newRunCommand(cli.Env{})
	if all[0] != cmd.Name() {
		t.Fatalf("command %s", all[0])
	}
	if err := cmd.ParseFlags(all[1:]); err != nil {
		t.Fatal(err)
	}
	given := []string{}
	for _, arg := range all[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if value != cmd.Flags().Lookup(name).DefValue {
			given = append(given, arg)
		}
	}
	want := []string{"--node-name=$(NODE_NAME)", "--cni-conf-dir=/host/cni/net.d", "--cni-bin-dir=/host/cni/bin", "--command-dir=/host/command"}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("not the agent's defaults (-want +got):\n%s", diff)
	}
}

func TestUninstallManifestIsUnderstood(t *testing.T) {
	all := args(t, "../../deploy/uninstall.yaml")
	cmd := newUninstallCommand(cli.Env{})
	if all[0] != cmd.Name() {
		t.Fatalf("command %s", all[0])
	}
	if err := cmd.ParseFlags(all[1:]); err != nil {
		t.Fatal(err)
	}
}
