//go:build kubernetes

package smoke

import (
	"slices"
	"testing"
)

// test is a row of the lists below.
type test struct {
	name string
	run  func(t *testing.T)
}

// TestNetwork tests what pods, nodes and Services expect of any network, on any topology. It restores the cluster's
// state.
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
		{"PodsAndServicesAtOnce", directAndService},
		{"HeadlessService", headlessService},
		{"NodePort", nodePort},
		{"NodePortLocal", nodePortLocal},
		{"HostPort", hostPorts},
		{"SessionAffinity", sessionAffinity},
		{"Rejection", rejection},
		{"LoadBalancer", loadBalancer},
		{"ExternalIP", externalIP},
		{"InternalLocal", internalLocal},
		{"HealthCheck", healthCheck},
		{"ExternalSeesNodes", externalSeesNodes},
		{"APIServerFromPods", apiServerFromPods},
	}
	if len(poolNames()) > 1 {
		all = append(all, test{"PodsOfAllPools", podsOfAllPools})
	}
	if hasTwoFamilies(t) {
		all = append(all, test{"PoliciesOfTwoFamilies", policiesOfTwoFamilies})
	}
	if hasNarrowPaths() {
		all = append(all, test{"PathMTUsAreCached", pathMTUsAreCached})
	}
	for _, test := range all {
		run(t, test)
	}
}

// TestLife tests disruptions, from the smallest to the largest. It needs the cluster for itself.
func TestLife(t *testing.T) {
	all := []test{
		{"NothingIsLeft", waitTraces}, // of earlier pods
		{"RightsOfTheAgent", rightsOfTheAgent},
		{"AgentsKeepToTheirNode", agentsKeepToTheirNode},
		{"AgentsKeepToTheirClaims", agentsKeepToTheirClaims},
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
	}
	if len(testbedPools()) > 0 { // the fixtures are not of the nodes' ranges
		all = slices.DeleteFunc(all, func(t test) bool { return t.name == "ChangedPodRange" })
	}
	for _, test := range all {
		run(t, test)
	}
}

func run(t *testing.T, test test) {
	t.Run(test.name, func(t *testing.T) {
		explainFailure(t)
		test.run(t)
	})
}
