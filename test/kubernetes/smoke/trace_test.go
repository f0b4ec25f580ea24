//go:build kubernetes

package smoke

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// traces is everything that pods leave on a node, one line each: devices, routes, files, pins, table entries,
// addresses. The agent must be running.
func traces(node string) (found []string, err error) {
	status, err := agentStatus(node)
	if err != nil {
		return nil, err
	}
	found = append(found, fmt.Sprintf("%d endpoints", status.Endpoints))
	for _, m := range status.Maps {
		if m.Name == "endpoints" {
			found = append(found, fmt.Sprintf("%d entries in map endpoints", m.Entries))
		}
	}
	for _, p := range status.Pools {
		found = append(found, fmt.Sprintf("%d addresses of %s in use", p.Used, p.Prefix))
	}
	// Devices by their names, which say nothing of the pod: what matters is how many there are. A pod's device gets one of its programs
	// a while after the others.
	const look = `ls /sys/class/net | grep -c '^bl[0-9a-f]' ; ls /sys/fs/bpf/beeline/links | grep '^bl[0-9a-f]' | cut -d' ' -f1 | sort -u | wc -l ;
		ls /run/beeline/endpoints | wc -l ; ip -o route show proto 190 | grep -vc / ; ls /run/netns 2>/dev/null | wc -l ; true`
	said, err := onNode(node).run("sh", "-c", look)
	if err != nil {
		return nil, err
	}
	counts := strings.Fields(said)
	for i, what := range []string{"devices", "devices with pins", "endpoint files", "routes to pods", "network namespaces"} {
		if i < len(counts) {
			found = append(found, counts[i]+" "+what)
		}
	}
	return found, nil
}

// tracesOfAll are those of all nodes.
func tracesOfAll(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	if !isBeeline() {
		return all
	}
	for _, n := range clusterNodes(t) {
		found, err := traces(n.name)
		if err != nil {
			t.Fatal(err)
		}
		all[n.name] = found
	}
	return all
}

// waitTraces waits until the nodes have exactly these traces again.
func waitTraces(t *testing.T, want map[string][]string) {
	t.Helper()
	for node, want := range want {
		eventually(t, func() error {
			got, err := traces(node)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%s has %s; want %s", node, strings.Join(got, ", "), strings.Join(want, ", "))
			}
			return err
		})
	}
}

// waitAgentKnowsPods waits until the endpoints of a node's agent are exactly the node's pods in the API, with the
// same addresses, and nothing is wrong with any.
func waitAgentKnowsPods(t *testing.T, node string) {
	t.Helper()
	if !isBeeline() {
		return
	}
	eventually(t, func() error {
		var list corev1.PodList
		if err := get(&list, "pods", "-A", "--field-selector", "spec.nodeName="+node); err != nil {
			return err
		}
		var want, got []string
		for _, p := range list.Items {
			if !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
				want = append(want, fmt.Sprintf("%s/%s %s ready", p.Namespace, p.Name, p.Status.PodIP))
			}
		}
		all, err := agentEndpoints(node)
		if err != nil {
			return err
		}
		for _, e := range all {
			for _, a := range e.Addresses {
				if a.Is4() {
					got = append(got, fmt.Sprintf("%s/%s %s %s", e.Pod.Namespace, e.Pod.Name, a, e.State))
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		return wantSame("endpoints of "+node, strings.Join(got, ", "), strings.Join(want, ", "), nil)
	})
}

// wantDistinctAddresses fails the test where two pods of the cluster have the same address, or a pod one that is not
// of its node's range.
func wantDistinctAddresses(t *testing.T) {
	t.Helper()
	var nodes corev1.NodeList
	mustGet(t, &nodes, "nodes")
	ranges := map[string]netip.Prefix{}
	for _, n := range nodes.Items {
		prefix, err := netip.ParsePrefix(n.Spec.PodCIDR)
		if err != nil {
			t.Fatal(err)
		}
		ranges[n.Name] = prefix
	}
	var list corev1.PodList
	mustGet(t, &list, "pods", "-A")
	holder := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.HostNetwork || p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning {
			continue
		}
		if other, taken := holder[p.Status.PodIP]; taken {
			t.Errorf("%s and %s both have %s", other, p.Name, p.Status.PodIP)
		}
		holder[p.Status.PodIP] = p.Name
		if a, err := netip.ParseAddr(p.Status.PodIP); err != nil || !ranges[p.Spec.NodeName].Contains(a) {
			t.Errorf("%s has %s, which is not of its node's range %s (%v)", p.Name, p.Status.PodIP, ranges[p.Spec.NodeName], err)
		}
	}
}
