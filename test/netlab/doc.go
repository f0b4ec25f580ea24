// Package netlab runs this project's two programs on the nodes of a lab, as a user has them: agents by their command
// line, pods by libcni, objects as manifests. test/e2e and test/adversary share it.
//
// What belongs here: starting and stopping the programs. What does not: labs themselves (lab/testbed), and anything
// that asserts.
package netlab
