//go:build kubernetes

package smoke

import "testing"

// test is one line of the lists below: what has to hold, and the function that finds out.
type test struct {
	name string
	run  func(t *testing.T)
}

// TestNetwork is what pods, nodes and Services can expect of any network, on any topology. It leaves the cluster as
// it was.
func TestNetwork(t *testing.T) {
	all := []test{
		{"NodesAreReady", nodesAreReady},
		{"Replacement", replacement},
		{"Terminating", terminating},
		{"PodsReachPods", podsReachPods},
		{"PodsAndNodes", podsAndNodes},
		{"HostNetworkPods", hostNetworkPods},
		{"LargeTransfers", largeTransfers},
		{"ProbesOfTheKubelet", probesOfTheKubelet},
		{"ClusterDNS", clusterDNS},
		{"ClusterIP", clusterIP},
		{"ClusterIPHairpin", clusterIPHairpin},
		{"PodsAndServicesAtOnce", bothWays},
		{"HeadlessService", headlessService},
		{"NodePort", nodePort},
		{"NodePortLocal", nodePortLocal},
		{"HostPort", hostPorts},
		{"SessionAffinity", sessionAffinity},
		{"Refusal", refusal},
		{"LoadBalancer", loadBalancer},
		{"ExternalIP", externalIP},
		{"InternalLocal", internalLocal},
		{"HealthCheck", healthCheck},
		{"WorldSeesNodes", worldSeesNodes},
		{"APIServerFromPods", apiServerFromPods},
	}
	if hasTwoFamilies(t) {
		all = append(all, test{"PoliciesOfTwoFamilies", policiesOfTwoFamilies})
	}
	if hasNarrowPaths() {
		all = append(all, test{"PathsAreRemembered", pathsAreRemembered})
	}
	for _, test := range all {
		run(t, test)
	}
}

// TestLife is what a network has to survive. It needs the nodes to itself, and goes from what disturbs little to what
// disturbs most.
func TestLife(t *testing.T) {
	for _, test := range []test{
		{"NothingIsLeft", waitTraces}, // of all pods before
		{"RightsOfTheAgent", rightsOfTheAgent},
		{"AgentsKeepToTheirNode", agentsKeepToTheirNode},
		{"Idle", idle},
		{"HundredPods", hundredPods},
		{"AgentsDieWhilePodsStart", agentsDieWhilePodsStart},
		{"NoAgentOnTheNode", noAgentOnTheNode},
		{"RollingUpdate", rollingUpdate},
		{"APIServerOutage", apiServerOutage},
		{"Drain", drain},
		{"NodeRestart", nodeRestart},
		{"ChangedPodRange", changedPodRange},
		{"NodeDeletion", nodeDeletion},
		{"RemovalAndReturn", removalAndReturn},
	} {
		run(t, test)
	}
}

func run(t *testing.T, test test) {
	t.Run(test.name, func(t *testing.T) {
		explainFailure(t)
		test.run(t)
	})
}
