package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// poolOf is the manifest of an IPPool in the subnets of a node's addresses, which all pods use: ten addresses at the end of each.
func poolOf(name string, n *node) []byte {
	var subnets, ranges []string
	for _, p := range n.Addresses {
		prefix, _, _ := strings.Cut(p.Addr().String()+"\n", "\n")
		cut := strings.LastIndexAny(prefix, ".:") + 1
		subnets = append(subnets, fmt.Sprintf("%q", p.Masked()))
		ranges = append(ranges, fmt.Sprintf("\"%[1]s200-%[1]s209\"", prefix[:cut]))
	}
	return fmt.Appendf(nil, "apiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s}\nspec:\n  subnets: [%s]\n  ranges: [%s]\n  default: true\n",
		name, strings.Join(subnets, ", "), strings.Join(ranges, ", "))
}

// addPoolPod makes pods until one has addresses of the pool: the agent may not have read it yet.
func (w *external) addPoolPod(name string) machine {
	w.t.Helper()
	var pod *testbed.Pod
	for try := 0; pod == nil; try++ {
		p := w.addPod(w.here, fmt.Sprintf("%s-%d", name, try))
		if w.here.Addresses[0].Masked().Contains(p.Addresses[0]) {
			pod = p
		} else if try > 30 {
			w.t.Fatalf("pod %s has addresses %v, none of an IPPool in %s", name, p.Addresses, w.here.Addresses[0].Masked())
		}
	}
	return machine{name, pod.Netns, pod.Addresses}
}

// A pod with addresses of the nodes' own network is a host of that network: its node answers for it, and nothing translates its address.
func TestRoutedUnderlay(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			w := newExternal(t, "--routing", routing)
			t.Cleanup(func() {
				if drops, err := w.here.api().Drops(context.Background()); t.Failed() {
					t.Logf("drops: %+v, %v", drops, err)
				}
			})
			w.writeManifest("ippool.yaml", poolOf("office", w.here))
			pool := w.addPoolPod("pool")
			for _, other := range []machine{w.outside, w.peer, w.node, w.pod} {
				w.expect(pool, other, pool)
				w.expect(other, pool, other)
			}
			w.expect(pool, w.far, pool)
			second := w.addPoolPod("second")
			w.expect(pool, second, pool)
			w.expect(second, pool, second)
			w.expect(w.pod, w.outside, w.node)
			for i := range w.outside.addresses {
				w.expectRejection(pool, w.outside, i)
				w.expectRejection(w.outside, pool, i)
				w.expectFragments(pool, w.outside, i)
				w.expectFragments(w.outside, pool, i)
			}
			if n := w.masqueradeDrops(w.here); n > 0 {
				t.Errorf("%d packets dropped as no_masquerade_address", n)
			}
			// The addresses survive a restart of the agent.
			w.kill(w.here)
			w.expect(w.outside, pool, w.outside)
			w.start(w.here, current(t), "--routing", routing)
			w.waitReady(w.here)
			w.expect(pool, w.outside, pool)
			w.expect(w.outside, pool, w.outside)
		})
	}
}
