// Package instructions counts the instructions that a request and its reply cost, kernel and both ends together, on
// an emulated CPU whose clock is the number of instructions (QEMU's -icount): `go run ./test/vm -instructions` boots the
// machines. Unlike times, the counts are the same on every machine and beside any load.
//
// The nodes and pods are those of a lab, and Beeline runs in it as users run it.
package instructions
