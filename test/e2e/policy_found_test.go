package e2e

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/topology"
)

// webForClients lets pods in that are labelled so, at the port that the pod calls web.
const webForClients = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}"

// newStranded is a world with a policy by which near may reach pod, and nobody else.
func newStranded(t *testing.T) *guarded {
	g := newGuarded(t)
	g.labels["far"] = "stranger"
	g.writePods()
	g.policy("web", webForClients)
	g.expectAdmitted()
	return g
}

func (g *guarded) expectAdmitted() {
	g.t.Helper()
	g.expectPorts(g.near, g.pod, backendPort)
	g.expectPorts(g.far, g.pod)
	g.expectPorts(g.outside, g.pod)
}

// An agent that has lost what it wrote down of its pods knows by their addresses which policies select them.
func TestPolicyOverLostFiles(t *testing.T) {
	t.Parallel()
	g := newStranded(t)
	probe := g.probe(g.far, g.outside)
	g.kill(g.here)
	g.removeEndpointFiles(g.here)
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.expectAdmitted()
	probe.finish(t)
	g.noPolicy("web")
	g.expectPorts(g.far, g.pod, backendPort, otherPort)
	g.waitNoProblem(g.here)
}

// An agent that starts while nobody understands what there is about pods leaves policies as they were, and closes pods that are added
// to all but their node until it does.
func TestPolicyOverBrokenPods(t *testing.T) {
	t.Parallel()
	g := newStranded(t)
	probe := g.probe(g.far, g.outside)
	g.kill(g.here)
	g.writeManifest("pods.yaml", []byte("kind: Pod\nmetadata: ["))
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.waitProblem(g.here, "were there when the agent started")
	g.expectAdmitted()
	added := g.addPod(g.here, "late")
	late := worldEnd{"late", g.lab.Place(added), added.Addresses}
	answer(t, late, backendPort)
	answer(t, late, otherPort)
	g.expectPorts(g.near, late)
	g.expectPorts(g.node, late, backendPort, otherPort)
	g.writePods()
	g.expectPorts(g.near, late, backendPort, otherPort)
	g.expectAdmitted()
	probe.finish(t)
	g.waitNoProblem(g.here)
}

// An address that pods have one after the other, of which a policy admits every second one, is each time that of the pod that has it.
func TestPolicyAndReusedAddresses(t *testing.T) {
	t.Parallel()
	const pods = 12
	c := newCluster(t, topology.Options{})
	n := c.nodes[0]
	n.object.Spec.PodCIDRs = []string{netip.PrefixFrom(n.PodCIDRs[0].Addr(), 29).String()}
	c.writeNode(n)
	c.start(n, current(t))
	c.waitReady(n)
	added := c.addPod(n, "web")
	heard, err := datagrams(c.lab.Place(added), netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	defer heard.socket.Close()
	object := func(namespace, name, app string, at netip.Addr) {
		c.writeManifest("pod-"+name+".yaml", fmt.Appendf(nil,
			"apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {app: %s}}\nspec: {nodeName: %s}\nstatus: {podIPs: [{ip: %s}]}\n", name, namespace, app, n.Name, at))
	}
	object("default", "web", "web", added.Addresses[0])
	c.writeManifest("policy.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\n"+
		"spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}]}]}\n"))
	eventually(t, func() error {
		if s := c.status(n); s.Policy.Pods != 1 {
			return fmt.Errorf("%d pods are selected", s.Policy.Pods)
		}
		return nil
	})
	had := map[netip.Addr]string{}
	reused := 0
	for i := range pods {
		name, app := fmt.Sprintf("p%d", i), []string{"client", "stranger"}[i%2]
		pod := c.newPod(n, name)
		var end atomic.Bool
		var sender sync.WaitGroup
		place := c.lab.Place(pod)
		before := heard.count.Load()
		sender.Go(func() { sendTo(place, added.Addresses[:1], &end) })
		if _, err := c.standard(n).add(t.Context(), pod, confIn("free", pod)); err != nil {
			t.Fatal(err)
		}
		at := pod.Addresses[0]
		if other, ok := had[at]; ok && other != app {
			reused++
		}
		had[at] = app
		if app == "client" {
			object("free", name, app, at) // and stays when the pod is gone, as an object that nobody has deleted yet
			eventually(t, func() error {
				if heard.count.Load() == before {
					return fmt.Errorf("%s is not heard", name)
				}
				return nil
			})
		} else {
			time.Sleep(50 * time.Millisecond)
		}
		end.Store(true)
		sender.Wait()
		if n := heard.count.Load() - before; app == "stranger" && n > 0 {
			t.Errorf("%s at %s is heard %d times", name, at, n)
		}
		c.delPod(n, pod)
	}
	if reused == 0 {
		t.Errorf("no address was another pod's before: %v", had)
	}
}
