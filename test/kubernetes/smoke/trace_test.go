//go:build kubernetes

package smoke

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// lookForTraces prints the named state of pods on a node, a line each: its type and the device or network namespace
// that owns it, for routes to pods of IPPools on other nodes the address. A pod's device is followed by its pins.
const lookForTraces = `
ls /sys/class/net | sed -n 's/^bl[0-9a-f]/device &/p'
ls /sys/fs/bpf/beeline/links | sed -n 's/^\(bl[0-9a-f][^ ]*\) .*/pin \1/p'
ls /run/beeline/endpoints | sed 's/^/file /; s/\.json$//'
for family in -4 -6; do ip $family -o route show proto 190 | grep -v / |
	sed 's/^\([^ ]*\) via .*/path \1/; t; s/^\([^ ]*\) .*dev \([^ ]*\).*/route \1 \2/'; done
ls /run/netns 2>/dev/null | sed 's/^/namespace /'
true`

// traces compares the state of pods on a node with the endpoints of its agent: the error names leaked and missing
// state. The agent must be running.
func traces(node string) error {
	endpoints, err := agentEndpoints(node)
	if err != nil {
		return err
	}
	output, err := onNode(node).run("sh", "-c", lookForTraces)
	if err != nil {
		return err
	}
	claims, err := ipClaims()
	if err != nil {
		return err
	}
	want, addresses, claimed, inPools := map[string]string{}, 0, 0, 0
	for address, owner := range claims {
		if owner == node {
			claimed++
		} else {
			want["path "+address] = owner
		}
	}
	for _, e := range endpoints {
		addresses += len(e.Addresses)
		pod := e.Pod.Namespace + "/" + e.Pod.Name
		for _, kind := range []string{"device", "pin", "file"} {
			want[kind+" "+e.HostDevice] = pod
		}
		for _, a := range e.Addresses {
			want["route "+a.String()+" "+e.HostDevice] = pod
		}
		want["namespace "+filepath.Base(e.Netns)] = pod
		inPools += countInPools(e.Addresses)
	}
	found := map[string]bool{}
	for line := range strings.Lines(output) {
		found[strings.TrimSpace(line)] = true
	}
	var wrong []string
	for _, trace := range slices.Sorted(maps.Keys(found)) {
		if _, owned := want[trace]; !owned {
			wrong = append(wrong, trace+" belongs to no pod")
		}
	}
	for _, trace := range slices.Sorted(maps.Keys(want)) {
		if !found[trace] {
			wrong = append(wrong, want[trace]+" lacks its "+trace)
		}
	}
	if claimed != inPools {
		wrong = append(wrong, fmt.Sprintf("%d IPClaims, endpoints have %d addresses of IPPools", claimed, inPools))
	}
	counted, err := countedTraces(node, addresses, inPools)
	if err != nil {
		return err
	}
	return wrongOn(node, append(wrong, counted...))
}

// countedTraces compares unnamed state with the addresses of a node's endpoints: map entries and allocated addresses, of
// which some are not the node's but IPPools'.
func countedTraces(node string, addresses, inPools int) (wrong []string, err error) {
	status, err := agentStatus(node)
	if err != nil {
		return nil, err
	}
	for _, m := range status.Maps {
		if m.Name == "endpoints" && m.Entries != addresses {
			wrong = append(wrong, fmt.Sprintf("%d entries in the table of endpoints, which have %d addresses", m.Entries, addresses))
		}
	}
	used := 0
	for _, p := range status.Pools {
		used += p.Used
	}
	if used != addresses-inPools {
		wrong = append(wrong, fmt.Sprintf("%d addresses are taken, endpoints have %d", used, addresses-inPools))
	}
	return wrong, nil
}

// wrongOn makes a one-line error of a node's problems.
func wrongOn(node string, wrong []string) error {
	const enough = 10
	if len(wrong) == 0 {
		return nil
	}
	output := strings.Join(wrong[:min(enough, len(wrong))], "; ")
	if more := len(wrong) - enough; more > 0 {
		output += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(node + ": " + output)
}

// waitTraces waits until every node has exactly the state of its pods in the API.
func waitTraces(t *testing.T) {
	t.Helper()
	for _, n := range clusterNodes(t) {
		waitTracesOn(t, n.name)
	}
}

// waitTracesOn does so for one node.
func waitTracesOn(t *testing.T, node string) {
	t.Helper()
	waitAgentHasPods(t, node)
	if isBeeline() {
		eventually(t, func() error { return traces(node) })
	}
}

// waitAgentHasPods waits until the endpoints of a node's agent match the node's pods in the API, with the same
// addresses and without problems.
func waitAgentHasPods(t *testing.T, node string) {
	t.Helper()
	if !isBeeline() {
		return
	}
	eventually(t, func() error {
		var list corev1.PodList
		if err := get(&list, "pods", "-A", "--field-selector", "spec.nodeName="+node); err != nil {
			return err
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, p := range list.Items {
			if !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
				for _, ip := range p.Status.PodIPs {
					want[fmt.Sprintf("%s/%s %s ready", p.Namespace, p.Name, ip.IP)] = true
				}
			}
		}
		all, err := agentEndpoints(node)
		if err != nil {
			return err
		}
		for _, e := range all {
			for _, a := range e.Addresses {
				got[fmt.Sprintf("%s/%s %s %s", e.Pod.Namespace, e.Pod.Name, a, e.State)] = true
			}
		}
		var wrong []string
		for _, e := range slices.Sorted(maps.Keys(got)) {
			if !want[e] {
				wrong = append(wrong, "the agent has the endpoint "+e+", which is no pod of the API")
			}
		}
		for _, p := range slices.Sorted(maps.Keys(want)) {
			if !got[p] {
				wrong = append(wrong, "the agent has no endpoint "+p)
			}
		}
		return wrongOn(node, wrong)
	})
}

// wantDistinctAddresses fails the test if two pods share an address, or if a pod's address is neither in its node's
// range nor in an IPPool.
func wantDistinctAddresses(t *testing.T) {
	t.Helper()
	var nodes corev1.NodeList
	mustGet(t, &nodes, "nodes")
	ranges := map[string][]netip.Prefix{}
	for _, n := range nodes.Items {
		for _, r := range n.Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(r)
			if err != nil {
				t.Fatal(err)
			}
			ranges[n.Name] = append(ranges[n.Name], prefix)
		}
	}
	var list corev1.PodList
	mustGet(t, &list, "pods", "-A")
	holder := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.HostNetwork || p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning {
			continue
		}
		if got, want := len(p.Status.PodIPs), len(ranges[p.Spec.NodeName]); got != want {
			t.Errorf("%s has %d addresses, its node has ranges of %d families", p.Name, got, want)
		}
		for _, ip := range p.Status.PodIPs {
			if other, taken := holder[ip.IP]; taken {
				t.Errorf("%s and %s both have %s", other, p.Name, ip.IP)
			}
			holder[ip.IP] = p.Name
			a, err := netip.ParseAddr(ip.IP)
			if err != nil || poolWith(a) == "" && !slices.ContainsFunc(ranges[p.Spec.NodeName], func(r netip.Prefix) bool { return r.Contains(a) }) {
				t.Errorf("%s has %s, which is not of its node's ranges %s or an IPPool (%v)", p.Name, ip.IP, ranges[p.Spec.NodeName], err)
			}
		}
	}
}
