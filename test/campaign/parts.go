package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// part is one kind of random test. Its tests take their seed from testenv.SeedVariable, or, with fuzz, from the fuzzer.
type part struct {
	name string
	// packages with the tests, and the pattern of the tests' names.
	packages []string
	tests    string
	// fuzz is the time that the fuzzer looks for new inputs; 0 for tests that are not fuzz targets.
	fuzz time.Duration
	// count is the number of runs with the same seed, for tests that depend on timing.
	count int
	// set are environment variables that make tests do more than in CI.
	set []string
}

// fuzzing is the time of a fuzz target in one round.
const fuzzing = 2 * time.Minute

// fullFloods makes floods last a minute each, with up to 100,000 packets a second.
var fullFloods = []string{"BEELINE_FLOODS=full"}

// parts are all random tests. campaign_test.go checks that every fuzz target is listed.
var parts = []part{
	{name: "oracle", packages: []string{"./internal/datapath/policy"}, tests: "^TestPolicyOracle$"},
	{name: "race", packages: []string{"./internal/datapath/policy"}, tests: "^TestPoliciesNeverMoreOpen$"},
	{name: "packets", packages: []string{"./internal/datapath", "./internal/datapath/lb", "./internal/datapath/fwd"}, tests: "^(TestRandomPackets|TestRandomNodePortPackets|TestServicesRandomly|TestLongestPrefixWins)$"},
	{name: "properties", packages: []string{"./internal/policy/...", "./internal/service", "./internal/ipam", "./internal/ipclaim"}, tests: "^Test"},
	{name: "faults", packages: []string{"./test/e2e"}, tests: "^(TestChurnWithKill|TestLongAbsence|TestPodVanishes|TestStateDirectoryLost|TestVanishingPodsLeaveNodeReady)$", count: 3},
	{name: "adversary", packages: []string{"./test/adversary"}, tests: "^TestAttacks$"},
	{name: "floods", packages: []string{"./test/e2e"}, tests: "^TestFloodsOfPods$", set: fullFloods},
	{name: "floods-outside", packages: []string{"./test/e2e"}, tests: "^TestFloodsFromOutside$", set: fullFloods},
	{name: "fuzz-tables", packages: []string{"./internal/policy"}, tests: "^FuzzTables$", fuzz: fuzzing},
	{name: "fuzz-compile", packages: []string{"./internal/policy"}, tests: "^FuzzCompile$", fuzz: fuzzing},
	{name: "fuzz-pool", packages: []string{"./internal/ipam"}, tests: "^FuzzPool$", fuzz: fuzzing},
	{name: "fuzz-config", packages: []string{"./internal/cni"}, tests: "^FuzzParseConfig$", fuzz: fuzzing},
	{name: "fuzz-conflict", packages: []string{"./internal/device/conflict"}, tests: "^FuzzClaimant$", fuzz: fuzzing},
	{name: "fuzz-objects", packages: []string{"./internal/cluster"}, tests: "^FuzzParse$", fuzz: fuzzing},
	{name: "fuzz-programs", packages: []string{"./internal/datapath"}, tests: "^FuzzPrograms$", fuzz: fuzzing},
	{name: "fuzz-nodeport", packages: []string{"./internal/datapath/lb"}, tests: "^FuzzNodePorts$", fuzz: fuzzing},
}

// selectParts gives the parts whose names match.
func selectParts(all []part, pattern string) ([]part, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var chosen []part
	var names []string
	for _, p := range all {
		names = append(names, p.name)
		if match.MatchString(p.name) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %q matches none of: %s", pattern, strings.Join(names, ", "))
	}
	return chosen, nil
}

// command runs a part once.
type command struct {
	seed uint64
	set  []string
	args []string
}

// String is the shell command that repeats the run.
func (c command) String() string {
	return strings.Join(slices.Concat(c.environment(), c.args), " ")
}

// environment are the variables that the tests get in addition to this process's.
func (c command) environment() []string {
	return append([]string{"BEELINE_REQUIRE=1", fmt.Sprintf("%s=%d", testenv.SeedVariable, c.seed)}, c.set...)
}

// command gives the command that runs the part with a seed. A fuzz target has no seed: it keeps failing inputs in testdata.
func (p part) command(seed uint64) command {
	args := []string{"go", "test", "-count", fmt.Sprint(max(1, p.count)), "-timeout", "30m"}
	if p.fuzz > 0 {
		args = append(args, "-run", "'^$'", "-fuzz", "'"+p.tests+"'", "-fuzztime", p.fuzz.String(), "-parallel", "1")
	} else {
		args = append(args, "-run", "'"+p.tests+"'")
	}
	return command{seed, p.set, append(args, p.packages...)}
}

// onlyOutOfTime reports whether a fuzz target failed only because its time was over, which Go before 1.27 sometimes takes for a failure
// (golang/go issue 75804). The fuzzer writes failing inputs to a file and prints its name.
func onlyOutOfTime(output []byte) bool {
	return bytes.Contains(output, []byte("\n    context deadline exceeded\nFAIL\n")) && !bytes.Contains(output, []byte("Failing input"))
}

// execute runs a command and returns its output.
func execute(ctx context.Context, c command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.Join(c.args, " "))
	cmd.Env = append(os.Environ(), c.environment()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.CombinedOutput()
}
