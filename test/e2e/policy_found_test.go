package e2e

import (
	"testing"
)

// webForClients lets pods in that are labelled so, at the port that the pod calls web.
const webForClients = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}"

// newAdmitted is a world with a policy by which near may reach pod, and nobody else.
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

// An agent that has lost what it wrote down of its pods knows by their addresses which policies select them.
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

// An agent that starts while nobody understands what there is about pods leaves policies as they were, and closes pods that are added
// to all but their node until it does.
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
	late := machine{"late", g.lab.Place(added), added.Addresses}
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
