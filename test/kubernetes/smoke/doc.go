// Package smoke tests Beeline on a real Kubernetes cluster, that of the test bed in the directory above, as a user
// has it: through kubectl, with pods that talk to each other, to nodes, to Services and to the world. What it looks
// at besides is what `beeline status` says and what is left on the nodes' disks and devices.
//
// Its tests have the build tag "kubernetes": they need a cluster that is up, use all of it, and some restart nodes
// and the API server.
//
//	make cluster && go test -tags kubernetes -v ./test/kubernetes/smoke
//
// smoke_test.go has the list of tests. A test that fails shows the pods, the events, and what the agents say.
package smoke
