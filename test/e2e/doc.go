// Package e2e tests the two programs as a user has them: real binaries, agents on the nodes of a lab, pods made
// by libcni, traffic in the pods' namespaces. It knows nothing of their insides; what it looks at is the
// network, the kernel's state, the files, the command line and the metrics.
//
// Every test makes labs of its own and takes them down; TestMain fails the package when one is left.
package e2e
