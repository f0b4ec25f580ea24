package main

import (
	"fmt"
	"slices"
	"strings"
)

// kernel is one line of the table of kernels that the tests run on.
type kernel struct {
	version string
	// pkg is the Debian package with it.
	pkg debian
	// complete says that this kernel has all that the tests ask for: a test that skips has then failed.
	complete bool
	// only names the tests of a package, by its directory, that run on this kernel. Of a package that is not there, all do.
	only map[string][]string
	// quick is what -quick puts in the place of only.
	quick map[string][]string
	// skip is what go test's -skip wants: the subtests that are left out on this kernel.
	skip string
	// network says that the test of a network runs on this kernel.
	network bool
	// netkit says that this kernel has netkit devices.
	netkit bool
	// device is the kind of pods' devices in a run of these tests; see kernel.perDevice.
	device string
}

func (k kernel) String() string {
	if k.device == netkit {
		return "Linux " + k.version + " netkit"
	}
	return "Linux " + k.version
}

// kernels: the oldest that Beeline supports (no tcx, no netkit: all programs are filters there), which runs every test that meets the
// datapath but those of leftOut; the newest in Debian 12 (both, WireGuard, …), which runs what it may have an own answer to; and the
// long-term one after that, of Debian 13's backports, with what its verifier may see differently, and with the tests of the
// programs as a whole. Of 6.6 and of others between these there are no packages in archives that are still served.
var kernels = []kernel{
	{
		version: "6.1", pkg: debian{name: "linux-image-cloud-amd64"},
		only:  map[string][]string{endToEndDir: oldHooks, adversaryDir: nil, encryptionDir: nil, instructionsDir: plainInstructions},
		quick: map[string][]string{datapathDir: firstAnswers, endToEndDir: nil, adversaryDir: nil, encryptionDir: nil},
	},
	{
		version: "6.12", pkg: debian{name: "linux-image-6.12-cloud-amd64"}, complete: true,
		only: map[string][]string{
			datapathDir: withMacvlan, endToEndDir: oldHooks, adversaryDir: {"TestEncryptedAttacks"}, encryptionDir: encryptionBench,
			instructionsDir: plainInstructions,
		},
		quick: map[string][]string{datapathDir: verifier, endToEndDir: firstPrograms, adversaryDir: nil, encryptionDir: nil},
		skip:  attachedAsFilters, network: true, netkit: true,
	},
	{
		version: "6.18", pkg: debian{pattern: `^linux-image-6\.18\.[0-9.]+\+deb13-cloud-amd64$`, suite: "trixie-backports"}, complete: true,
		only:  map[string][]string{datapathDir: newest, encryptionDir: nil},
		quick: map[string][]string{datapathDir: {"TestFrameProtocol"}, endToEndDir: nil, adversaryDir: nil, encryptionDir: nil},
		skip:  attachedAsFilters, netkit: true,
	},
}

// testedPackages are those whose tests meet the kernel.
var testedPackages = []string{"internal/device/...", "internal/datapath/...", networkDir, endToEndDir, adversaryDir, encryptionDir}

// programs of this machine that the tests call and busybox does not have.
var programs = []string{"nft"}

func selectKernels(version string) ([]kernel, error) {
	if version == "" {
		return slices.Clone(kernels), nil
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
