package main

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// A test of the datapath runs on the oldest kernel, and a test of the programs on the newest one, unless leftOut names it. The lists name tests as path.Match does, and packages by directory: the packages
// below internal/datapath count as one, since no two of their tests have the same name.
const datapathDir = "internal/datapath"

// listed is the directory by which the lists name a package.
func listed(dir string) string {
	if strings.HasPrefix(dir, datapathDir+"/") {
		return datapathDir
	}
	return dir
}

// leftOut are tests that run only on this machine. They need much processor time and test nothing that differs between kernels, except
// that maps behave as on the oldest kernel, and that its verifier accepts programs which are parts of others that it accepts.
var leftOut = map[string][]string{
	datapathDir: {
		"FuzzPrograms", "FuzzNodePorts", "TestRandomPackets", "TestRandomNodePortPackets", "TestPolicyOracle", "TestPolicyOracleOnceFailed", "TestMalformed",
		"TestServicesKilled", "TestServicesRandomly", "TestConnectionsExpire", "TestConnectionsBecomeEmpty",
		"TestMemoryOfTenThousand", "TestMemoryOfPolicies", "TestLoadPolicyFewerFlows", "TestAddedMapKeepsItsGroup",
		"TestPoliciesNeverMoreOpen", "TestFlushUnderTraffic",
	},
	endToEndDir: {
		"TestPreviousVersion",                       // builds another version: needs git, Go and clang
		"TestFloodsOfPods", "TestFloodsFromOutside", // want rates that emulation does not reach
		"TestAddBesideHugeService", "TestServiceChangesByTheThousand", "TestServicesFull", "TestChurnWithKill", // much of what smaller tests do
	},
}

// oldHooks are the tests of the programs that attach, upgrade and remove, and each path of packets once.
var oldHooks = []string{
	"TestEncryption*", "TestBandwidth*", "TestMTUFollowsUplink", "TestPodOfDeletedVLANPool",
	"TestUninstall", "TestTrafficOutlivesAgents", "TestAnotherVersion", "TestPinsLost", "TestEverybodyReachesEverybody", "TestServices", "TestPolicy",
	"TestTunnelOutlivesAgent",
}

// encryptionBench is the bench's suite encryption: the machine itself may have no encryption, and one kernel is enough.
var encryptionBench = []string{"TestNetworks", "TestRun"}

// plainInstructions are the counts on kernels but the newest, which counts what encryption costs, too.
var plainInstructions = []string{"TestTransaction"}

// onNetkit are the tests of internal/datapath that run a second time, on netkit devices: each path of packets once. The tests of programs
// run on netkit devices alone where there are any: this machine runs them on veth.
var onNetkit = []string{
	"TestRedirect", "TestEchoesCross", "TestExternalMasqueraded", "TestTunnelCarries", "TestNodePortDSR", "TestNodePortOfHostThroughTunnel", "TestPolicyTraffic",
	"TestFlowsReportAll", "TestFrameProtocol",
}

// firstPrograms are those of -quick: pods on two nodes reach each other, and nothing is left of it.
var firstPrograms = []string{"TestUninstall"}

// betweenOldestAndHere are the tests of internal/datapath on kernels between the oldest one and this machine's. Every test runs on those
// two; on the others only tests whose result may differ again: the verifier, attaching, updating and detaching programs, destroying
// sockets, and each path of packets once with real devices.
var betweenOldestAndHere = []string{
	"TestLoad", "TestLoadServices", "TestLoadPolicy", "TestLoadDestroy", "TestLoadMacvlan",
	"TestAdopt*", "TestAttachments", "TestCheckMissesDetachedPrograms", "TestDeviceRecreated", "TestUplinkWithDot", "TestUnload",
	"TestAccelerate*", "TestSocketRestart", "TestSocketCgroups", "TestDestroyUDP*",
	"TestRedirect", "TestEchoesCross", "TestExternalMasqueraded", "TestTunnelCarries", "TestNodePortXDP", "TestNodePortDSR",
	"TestNodePortOfHostThroughTunnel", "TestSocketConnect", "TestSocketSend", "TestPolicyTraffic", "TestFlowsReportAll",
	"TestSocketsMeet", "TestKernelFaults", "TestPolicyRevokesPairs", "TestRandomStreams", "TestFrameProtocol",
}

// firstAnswers are those of betweenOldestAndHere that are left with -quick on the oldest kernel: what the verifier says, that programs are attached, and one way of
// packets with all that there is. TestLoadMacvlan has what agents load: the programs of Services and policies among them.
var firstAnswers = []string{"TestLoad", "TestLoadDestroy", "TestLoadMacvlan", "TestAttachments", "TestRedirect", "TestDestroyUDP*", "TestSocketSend", "TestPolicyTraffic", "TestSocketsMeet", "TestKernelFaults"}

// verifier are the tests of internal/datapath with -quick on kernels between the oldest one and this machine's: whether programs load there.
var verifier = []string{"TestLoad", "TestLoadDestroy", "TestLoadMacvlan", "TestRedirect", "TestFrameProtocol"}

// withMacvlan has the paths of macvlan pods too: without the hurry of -quick.
var withMacvlan = append(slices.Clone(betweenOldestAndHere), "TestMacvlan*", "TestPolicyMacvlan")

// newest are the tests of internal/datapath that run on a kernel which is like that of most machines: what its verifier says. TestLoadPolicy takes
// ten minutes and more under emulation, and the machine itself has the same verifier: -quick leaves the others out, too.
var newest = []string{"TestLoad", "TestLoadServices", "TestLoadDestroy", "TestFrameProtocol"}

// attachedAsFilters selects the variants of tests that attach programs as filters where there is tcx.
const attachedAsFilters = "/legacy=true"

// hurried is the kernel with the tests of -quick.
func (k kernel) hurried() kernel {
	k.only = k.quick
	return k
}

// The kinds of pods' devices, as BEELINE_DEVICE wants them.
const (
	veth   = "veth"
	netkit = "netkit"
)

// perDevice is the kernel once for each kind of device, with the tests that run on it. If only is not empty, all tests run on
// that kind.
func (k kernel) perDevice(only string) []kernel {
	if only != "" {
		k.device, k.netkit = only, false
		return []kernel{k}
	}
	k.device = veth
	if !k.netkit {
		return []kernel{k}
	}
	other := k
	other.device = netkit
	return []kernel{k, other}
}

// has says whether the tests of the package in dir run on this kernel's kind of devices.
func (k kernel) has(dir, test string) bool {
	switch {
	case !k.netkit:
		return true
	case k.device == netkit:
		return startsPrograms(dir) || listed(dir) == datapathDir && named(onNetkit, test)
	default:
		return !startsPrograms(dir)
	}
}

// runs says whether a test of the package in dir runs on this kernel.
func (k kernel) runs(dir, test string) bool {
	if !k.has(dir, test) {
		return false
	}
	if dir == networkDir {
		return k.network && test == networkTest
	}
	if named(leftOut[listed(dir)], test) {
		return false
	}
	only, chosen := k.only[listed(dir)]
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

// seconds that tests of a package take in an emulated machine, of those that take many; only their proportions matter. A test that is not
// here takes usual. Dealt without them, one machine of a kernel ends minutes before the other, and a core has nothing to do.
var seconds = map[string]map[string]int{
	datapathDir: {
		"TestLoadPolicy": 175, "TestSCTPSockets": 107, "TestPolicyTraffic": 90, "TestLoad": 75, "TestAdoptUnderTraffic": 75, "TestAttachments": 50,
		"TestVersionsUnderTraffic": 50, "TestNodePortOfHostThroughTunnel": 50, "TestAccelerateAgain": 43, "TestLoadServices": 36, "TestPolicyServices": 33,
		"TestAccelerateElsewhere": 31, "TestNodePortFromOnePort": 30, "TestNodePortIntoTunnelReportsMTU": 28, "TestNodePortDSR": 27,
		"TestSpoofedNeverArrives": 25, "TestNodePortLocalBackend": 23, "TestNodePortFlood": 22, "TestToPod": 21, "TestPeersComeAndGo": 20,
		"TestLateServices": 19, "TestNodePortSegmentation": 15, "TestSCTPWrongChecksum": 15, "TestNodePortXDP": 15,
		"TestPolicyStopsConnections": 14, "TestPolicyReportsBackends": 14, "TestPodErrorNamesDirections": 14, "TestSpareNetworksAreEmpty": 13,
		"TestConfigChangesPrograms": 12, "TestThroughStackToPod": 12, "TestNodePortPathMTU": 12, "TestSCTPMasqueraded": 11, "TestEntriesExpire": 11,
		"TestMaglevChoices": 11, "TestEntriesOfExternalClients": 11, "TestVLAN": 10, "TestToWireMasqueraded": 10, "TestNodePortDSRViewsDiffer": 10,
		"TestNodePortRejected": 10, "TestEchoesCross": 10, "TestSocketReplacement": 10,
	},
	networkDir:    {networkTest: 27},
	adversaryDir:  {"TestAttacks": 1800, "TestTwoUplinks": 150},
	encryptionDir: {"TestNetworks": 15, "TestRun": 300},
	endToEndDir: {
		"TestTrafficOutlivesAgents": 300, "TestEverybodyReachesEverybody": 180, "TestEverybodyReachesEverybodyThroughTunnels": 180, "TestPolicy": 180,
		"TestMTUFollowsUplink": 130, "TestChangeOfRoutingUnderTraffic": 120, "TestServices": 75, "TestAnotherVersion": 75, "TestSpoofedSource": 60, "TestPodVanishes": 60,
	},
}

// usual is how many seconds the other tests take on average, and usualOf is it for packages whose tests start agents.
const usual = 2

var usualOf = map[string]int{endToEndDir: 25, adversaryDir: 600}

// load is how many seconds each of a kernel's machines has to do.
type load []int

// deal adds tests of the package in dir to the load, the longest first and each to the machine that has least to do, and tells which each
// machine got. Those that take the usual time are thus dealt in turn: neighbours are alike, and so are then the parts.
func (l load) deal(dir string, tests []string) (parts [][]string) {
	takes := func(test string) int { return cmp.Or(seconds[listed(dir)][test], usualOf[dir], usual) }
	parts = make([][]string, len(l))
	longestFirst := slices.SortedStableFunc(slices.Values(tests), func(a, b string) int { return cmp.Compare(takes(b), takes(a)) })
	for _, test := range longestFirst {
		least := slices.Index(l, slices.Min(l))
		l[least] += takes(test)
		parts[least] = append(parts[least], test)
	}
	return parts
}
