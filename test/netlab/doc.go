// Package netlab runs this project's programs on the nodes of a lab as users do: agents by their command line, pods by
// libcni, objects as manifests. test/e2e and test/adversary share it. Labs themselves are in lab/testbed, assertions in
// the tests.
package netlab
