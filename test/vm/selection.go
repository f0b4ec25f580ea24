package main

import (
	"path"
	"slices"
)

// A test runs on the oldest kernel unless leftOut names it. Both lists name tests as path.Match does.

// leftOut are tests that no emulated machine runs, only the machine itself: they ask much of the processor, and nothing of the kernel
// but that maps are what they were when the oldest kernel was new.
var leftOut = map[string][]string{
	"internal/datapath": {
		"FuzzPrograms", "FuzzNodePorts", "TestRandomPackets", "TestRandomNodePortPackets", "TestPolicyOracle", "TestMalformed",
		"TestServicesKilled", "TestServicesRandomly", "TestConnectionsExpire", "TestConnectionsBecomeEmpty",
		"TestMemoryOfTenThousand", "TestMemoryOfPolicies",
	},
}

// betweenOldestAndHere are the tests of internal/datapath that kernels run which are newer than the oldest one and older than that of the
// machine itself. On these two every test runs, so on those between them only what may have a third answer there: the verifier, how
// programs are attached, updated and taken off, what destroys sockets, and each way of packets once with real devices.
var betweenOldestAndHere = []string{
	"TestLoad", "TestLoadServices", "TestLoadPolicy",
	"TestAdopt*", "TestAttachments", "TestCheckMissesDetachedPrograms", "TestDeviceRecreated", "TestUplinkWithDot", "TestUnload",
	"TestAccelerate*", "TestSocketRestart", "TestSocketCgroups", "TestDestroyUDP*",
	"TestRedirect", "TestEchoesCross", "TestWorldMasqueraded", "TestTunnelCarries", "TestNodePortXDP", "TestNodePortDSR",
	"TestNodePortOfHostThroughTunnel", "TestSocketConnect", "TestSocketSend", "TestPolicyTraffic", "TestFlowsTellOfAll", "TestSCTP*",
}

// attachedAsFilters selects the variants of tests that attach programs as filters where there is tcx.
const attachedAsFilters = "/legacy=true"

// runs says whether a test of the package in dir runs on this kernel.
func (k kernel) runs(dir, test string) bool {
	if dir == contenderDir {
		return k.contender && test == contenderTest
	}
	if named(leftOut[dir], test) {
		return false
	}
	only, chosen := k.only[dir]
	return !chosen || named(only, test)
}

// choose gives the packages with the tests that run on this kernel, and how many the one with most of them has.
func (k kernel) choose(tests []testBinary) (chosen []testBinary, most int) {
	for _, t := range tests {
		t.names = slices.DeleteFunc(slices.Clone(t.names), func(name string) bool { return !k.runs(t.dir, name) })
		chosen = append(chosen, t)
		most = max(most, len(t.names))
	}
	return chosen, most
}

func named(patterns []string, test string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, err := path.Match(pattern, test)
		return err == nil && matches
	})
}

// deal gives each of so many machines its part of the tests, in turn: neighbours are alike, and so are then the parts.
func deal(tests []string, machines int) [][]string {
	parts := make([][]string, machines)
	for i, test := range tests {
		parts[i%machines] = append(parts[i%machines], test)
	}
	return parts
}
