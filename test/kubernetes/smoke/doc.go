// Package smoke tests Beeline on a real Kubernetes cluster through kubectl: pods send traffic to each other, to
// nodes, to Services and to external hosts. It also checks `beeline status`, and the files and devices on nodes.
//
// The tests have the build tag "kubernetes". They need a cluster for themselves: the testbed's, or that of
// BEELINE_TEST_KUBECONFIG (see package testcluster). Some restart nodes and the API server.
//
//	make cluster && go test -tags kubernetes -v ./test/kubernetes/smoke
//
// smoke_test.go lists the tests. A failed test prints pods, events, and the agents' state.
package smoke
