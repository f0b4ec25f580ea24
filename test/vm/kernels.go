package main

import (
	"fmt"
	"slices"
	"strings"
)

// kernel is one line of the table of kernels that the tests run on.
type kernel struct {
	version string
	// meta is the Debian package that depends on the newest kernel of this version.
	meta string
	// complete says that this kernel has all that the tests ask for: a test that skips has then failed.
	complete bool
	// leaves selects tests that are left out on this kernel alone.
	leaves []string
}

// everywhereLeft selects tests that ask much of the processor and nothing of the kernel's version: they run on the machine itself.
var everywhereLeft = []string{
	"^(TestServicesKilled|TestServicesRandomly|TestConnectionsExpire|TestConnectionsBecomeEmpty|TestMemoryOfTenThousand|TestMemoryOfPolicies|TestPolicyOracle|TestRandom.*|Fuzz.*)$",
}

// tables selects tests that give a program packets without a network, or only fill and read maps. What they find follows from the
// programs and from helpers that are as old as the oldest kernel, where they run, as they do on the machine itself.
const tables = "^(TestFromPod.*|TestFromWire.*|TestFromTunnel.*|TestToPod.*|TestToWire.*|TestToTunnel|TestLateServices|" +
	"TestThroughStack(FromPod|ToPod|Changes|ToWorld)|TestHalvesOf.*|TestUnanswered.*|TestMalformed|TestHeaderOnly|TestICMPErrors|TestRefuse.*|" +
	"TestXDP.*|TestServices.*|TestServiceSources|TestMaglevBlocks|TestConnections.*|TestForget.*|TestAffinities.*|TestNumbersOf.*|" +
	"TestLengths.*|TestJourneys.*|TestPolic.*|TestSessions.*|TestFlow.*)$"

// maps selects those of the tests of tables that take long and run no program, or one that is the same everywhere.
const maps = "^(TestMalformed|TestServices.*|TestServiceSources|TestMaglevBlocks|TestConnections.*|TestForget.*|TestAffinities.*|TestNumbersOf.*|" +
	"TestLengths.*|TestJourneys.*|TestPolicies.*|TestSessions.*)$"

// filters selects the variants of tests that attach programs as filters where there is tcx.
const filters = "/legacy=true"

// skip is what go test's -skip wants. A test is left out if any of the parts, divided by |, selects it; in brackets | means itself.
func (k kernel) skip() string {
	return strings.Join(append(slices.Clone(everywhereLeft), k.leaves...), "|")
}

// kernels: the oldest that Beeline supports (no tcx, no netkit: all programs are filters there), and the newest in Debian 12 (both,
// WireGuard, …).
var kernels = []kernel{
	{version: "6.1", meta: "linux-image-cloud-amd64", leaves: []string{maps}},
	{version: "6.12", meta: "linux-image-6.12-cloud-amd64", complete: true, leaves: []string{tables, filters}},
}

// testedPackages are those whose tests meet the kernel.
var testedPackages = []string{"internal/device/...", "internal/datapath/..."}

// programs of this machine that the tests call and busybox does not have.
var programs = []string{"nft"}

func selectKernels(version string) ([]kernel, error) {
	if version == "" {
		return kernels, nil
	}
	var known []string
	for _, k := range kernels {
		if k.version == version {
			return []kernel{k}, nil
		}
		known = append(known, k.version)
	}
	return nil, fmt.Errorf("no kernel %q in the table, there are: %s", version, strings.Join(known, ", "))
}
