//go:build kubernetes

package smoke

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// rollingUpdate replaces the agents of all nodes while pods talk: by a restart of the DaemonSet, by an image with
// another version, and back. Nothing may be lost: no connection, no byte, no request.
func rollingUpdate(t *testing.T) {
	needBeeline(t)
	loadImage(t, newerArchive)
	c := useFixtures(t)
	before := mustKubectl(t, "-n", agentNamespace, "get", agentDaemonSet, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	traffic := startTraffic(t, c)

	mustKubectl(t, "-n", agentNamespace, "rollout", "restart", agentDaemonSet)
	waitRollout(t)
	traffic.goesOn()

	setImage(t, newerImage)
	t.Cleanup(func() { setImage(t, before) })
	for _, n := range []node{c.near, c.far} {
		if s, err := agentStatus(n.name); err != nil || s.Version != newerVersion {
			t.Errorf("the agent of %s is version %q after the update, want %q (%v)", n.name, s.Version, newerVersion, err)
		}
	}
	traffic.goesOn()

	// Pods that are made while the agents change get a network too.
	setImageStart(t, before)
	pod := podObject("during-update", c.far.name)
	applyForTest(t, pod)
	waitRollout(t)
	waitReady(t, pod.Name)
	traffic.goesOn()
	traffic.finish()
	for _, n := range []node{c.near, c.far} {
		waitAgentKnowsPods(t, n.name)
	}
}

// loadImage makes an image archive and imports it into the nodes. It skips the test if the cluster is not the testbed's and does not allow that.
func loadImage(t *testing.T, makeArchive func() (string, error)) {
	t.Helper()
	archive, err := makeArchive()
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Load(t.Context(), archive)
	if _, is := onTestbed(); err != nil && !is {
		testenv.Missing(t, "this cluster takes no image archives: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setImage gives the agents another image and waits until all run it.
func setImage(t *testing.T, image string) {
	t.Helper()
	setImageStart(t, image)
	waitRollout(t)
}

func setImageStart(t *testing.T, image string) {
	t.Helper()
	// Every container that runs the image, also those that run before the agent.
	mustKubectl(t, "-n", agentNamespace, "set", "image", agentDaemonSet, "*="+image)
}

// waitRollout waits until all agents are those of the DaemonSet as it is now, and ready.
func waitRollout(t *testing.T) {
	t.Helper()
	mustKubectl(t, "-n", agentNamespace, "rollout", "status", agentDaemonSet, "--timeout="+patience.String())
	for _, n := range clusterNodes(t) {
		waitAgentReady(t, n.name)
	}
}

// The product's image that agents are updated to.
const newerImage, newerVersion = "localhost/beeline:smoke-newer", "smoke-newer"

// newerArchive makes it of the sources, once.
var newerArchive = sync.OnceValues(func() (archive string, err error) {
	dir := filepath.Join(filepath.Dir(worldBeeline), "newer")
	build := exec.Command("make", "--no-print-directory", "image", "BIN="+dir, "IMAGE="+newerImage, "VERSION="+newerVersion)
	build.Dir = "../../.."
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	return filepath.Join(dir, "beeline-image.tar"), nil
})

// daemonSetPatch patches the pods of the DaemonSet and undoes it at the end of the test with the other patch.
func daemonSetPatch(t *testing.T, patch, undo string) {
	t.Helper()
	change := func(patch string) {
		mustKubectl(t, "-n", agentNamespace, "patch", agentDaemonSet, "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"template":{"spec":%s}}}`, patch))
	}
	t.Cleanup(func() {
		change(undo)
		waitRollout(t)
	})
	change(strings.TrimSpace(patch))
}
