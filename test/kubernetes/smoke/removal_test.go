//go:build kubernetes

package smoke

import (
	"errors"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// What a user applies and deletes; the second from the directory of this package.
const (
	installManifest   = plan.BeelineManifest
	uninstallManifest = "../../../deploy/uninstall.yaml"
)

// look prints Beeline's state on a node: files, devices, pins, reserved ports, rules and routes.
const look = `
ls -d /run/beeline /var/run/beeline /var/lib/beeline /sys/fs/bpf/beeline 2>/dev/null
ls -d /etc/cni/net.d/*beeline* /opt/cni/bin/beeline* /opt/beeline 2>/dev/null
ls /sys/class/net | grep -E '^(bl[0-9a-f]|beeline)' | sed 's/^/device /'
sed -n 's/.*40000.*/reserved &/p' /proc/sys/net/ipv4/ip_local_reserved_ports
for family in -4 -6; do
	ip $family -o route show table all proto 190 | sed 's/^/route /'
	ip $family rule | grep -i 190 | sed 's/^/rule /'
done
true`

// removalAndReturn: the removal in docs/upgrade.md leaves no state, and a new installation works.
func removalAndReturn(t *testing.T) {
	needBeeline(t)
	needTestbed(t, "remove its network")
	useFixtures(t)
	nodes := clusterNodes(t)
	// Delete pods before their network.
	mustKubectl(t, "delete", "namespace", namespace, "--timeout="+patience.String())
	mustKubectl(t, "delete", "-f", installManifest, "--ignore-not-found", "--timeout="+patience.String())
	mustKubectl(t, "apply", "-f", uninstallManifest)
	mustKubectl(t, "-n", agentNamespace, "rollout", "status", "daemonset/beeline-uninstall", "--timeout="+patience.String())
	mustKubectl(t, "delete", "-f", uninstallManifest, "--timeout="+patience.String())
	for _, n := range nodes {
		eventually(t, func() error {
			left, err := onNode(n.name).run("sh", "-c", look)
			if err == nil && strings.TrimSpace(left) != "" {
				err = errors.New("left on " + n.name + ":\n" + left)
			}
			return err
		})
	}
	output, err := kubectl("get",
		"clusterroles,clusterrolebindings,serviceaccounts,configmaps,daemonsets,validatingadmissionpolicies,validatingadmissionpolicybindings", "-A", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(output) {
		if strings.Contains(name, "beeline") {
			t.Errorf("left in the API: %s", name)
		}
	}

	mustKubectl(t, "apply", "-f", installManifest)
	if bed, is := cluster.(*testbed.Testbed); is {
		if err := bed.CreatePools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitRollout(t)
	for _, n := range nodes {
		waitNodeReady(t, n.name)
	}
	// Other pods have lost their network and are recreated.
	mustKubectl(t, "-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-dns", "--timeout="+patience.String())
	mustKubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout="+patience.String())
	mustKubectl(t, "create", "namespace", namespace)
	wantAllTalk(t, useFixtures(t))
}
