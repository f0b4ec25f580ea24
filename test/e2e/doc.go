// Package e2e tests the programs as users run them: real binaries, agents on the nodes of a lab, pods added by libcni,
// traffic in the pods' namespaces. It checks the network, the kernel's state, files, the command line and metrics, and
// not the inside of the programs.
//
// Each test makes and removes its own labs. TestMain fails if a lab is left.
package e2e
