package e2e

import (
	"testing"
)

// webForClients allows pods with the label app: client at the port named web.
const webForClients = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}"

// newAdmitted is a policy lab with a policy that allows near to reach pod, and no others.
func newAdmitted(t *testing.T) *policyLab {
	g := newPolicyLab(t)
	g.labels["far"] = "stranger"
	g.writePods()
	g.policy("web", webForClients)
	g.expectAdmitted()
	return g
}

func (g *policyLab) expectAdmitted() {
	g.t.Helper()
	g.expectPorts(g.near, g.pod, backendPort)
	g.expectPorts(g.far, g.pod)
	g.expectPorts(g.outside, g.pod)
}

// An agent without endpoint files finds by address which policies select its pods.
func TestPolicyOverLostFiles(t *testing.T) {
	t.Parallel()
	g := newAdmitted(t)
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

// An agent that starts with a broken manifest of Pods keeps the policies as they were, and allows added pods traffic with
// their node only.
func TestPolicyOverBrokenPods(t *testing.T) {
	t.Parallel()
	g := newAdmitted(t)
	probe := g.probe(g.far, g.outside)
	g.kill(g.here)
	g.writeManifest("pods.yaml", []byte("kind: Pod\nmetadata: ["))
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.waitProblem(g.here, "were there when the agent started")
	g.expectAdmitted()
	added := g.addPod(g.here, "late")
	late := machine{"late", added.Netns, added.Addresses}
	serveName(t, late, backendPort)
	serveName(t, late, otherPort)
	g.expectPorts(g.near, late)
	g.expectPorts(g.node, late, backendPort, otherPort)
	g.writePods()
	g.expectPorts(g.near, late, backendPort, otherPort)
	g.expectAdmitted()
	probe.finish(t)
	g.waitNoProblem(g.here)
}
