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

// rollingUpdate replaces the agents of all nodes under traffic: by a restart of the DaemonSet, by an image of another
// version, and back. No connection, byte or request may be lost.
func rollingUpdate(t *testing.T) {
	needBeeline(t)
	loadImage(t, newerArchive)
	c := useFixtures(t)
	before := mustKubectl(t, "-n", agentNamespace, "get", agentDaemonSet, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	traffic := startTraffic(t, c)

	mustKubectl(t, "-n", agentNamespace, "rollout", "restart", agentDaemonSet)
	waitRollout(t)
	traffic.waitProgress()

	setImage(t, newerImage)
	t.Cleanup(func() { setImage(t, before) })
	for _, n := range []node{c.near, c.far} {
		if s, err := agentStatus(n.name); err != nil || s.Version != newerVersion {
			t.Errorf("the agent of %s is version %q after the update, want %q (%v)", n.name, s.Version, newerVersion, err)
		}
	}
	traffic.waitProgress()

	// Pods created during the update get a network too.
	setImageStart(t, before)
	pod := podObject("during-update", c.far.name)
	applyForTest(t, pod)
	waitRollout(t)
	waitReady(t, pod.Name)
	traffic.waitProgress()
	traffic.finish()
	for _, n := range []node{c.near, c.far} {
		waitAgentHasPods(t, n.name)
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

// setImage sets the agents' image and waits until all run it.
func setImage(t *testing.T, image string) {
	t.Helper()
	setImageStart(t, image)
	waitRollout(t)
}

func setImageStart(t *testing.T, image string) {
	t.Helper()
	// Every container with the image, including init containers.
	mustKubectl(t, "-n", agentNamespace, "set", "image", agentDaemonSet, "*="+image)
}

// waitRollout waits until all agents match the DaemonSet and are ready.
func waitRollout(t *testing.T) {
	t.Helper()
	mustKubectl(t, "-n", agentNamespace, "rollout", "status", agentDaemonSet, "--timeout="+patience.String())
	for _, n := range clusterNodes(t) {
		waitAgentReady(t, n.name)
	}
}

// The image that agents are updated to.
const newerImage, newerVersion = "localhost/beeline:smoke-newer", "smoke-newer"

// newerArchive builds it once.
var newerArchive = sync.OnceValues(func() (archive string, err error) {
	dir := filepath.Join(filepath.Dir(externalBeeline), "newer")
	build := exec.Command("make", "--no-print-directory", "image", "BIN="+dir, "IMAGE="+newerImage, "VERSION="+newerVersion)
	build.Dir = "../../.."
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	return filepath.Join(dir, "beeline-image.tar"), nil
})

// daemonSetPatch patches the DaemonSet's pods and applies undo at the end of the test.
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
