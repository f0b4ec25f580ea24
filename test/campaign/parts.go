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
	// fuzz is how long the fuzzer looks for new inputs; 0 for tests that are no fuzz targets.
	fuzz time.Duration
	// count is how often the tests run, one after the other, with the same seed: for those that depend on timing.
	count int
	// set is environment variables that ask for more than CI does.
	set []string
}

// fuzzing is how long a fuzz target runs in one turn.
const fuzzing = 2 * time.Minute

// fullFloods has floods last for a minute each, with 100,000 packets a second if the machine makes so many.
var fullFloods = []string{"BEELINE_FLOODS=full"}

// parts are all kinds of random tests of this project. Every fuzz target is here: parts_test.go asks.
var parts = []part{
	{name: "oracle", packages: []string{"./internal/datapath/policy"}, tests: "^TestPolicyOracle$"},
	{name: "race", packages: []string{"./internal/datapath/policy"}, tests: "^TestPoliciesNeverMoreOpen$"},
	{name: "packets", packages: []string{"./internal/datapath", "./internal/datapath/lb", "./internal/datapath/fwd"}, tests: "^(TestRandomPackets|TestRandomNodePortPackets|TestServicesRandomly|TestLongestPrefixWins)$"},
	{name: "properties", packages: []string{"./internal/policy/...", "./internal/service", "./internal/ipam"}, tests: "^Test"},
	{name: "faults", packages: []string{"./test/e2e"}, tests: "^(TestChurnWithKill|TestLongAbsence|TestPodVanishes|TestStateDirectoryLost|TestVanishingPodsLeaveNodeReady)$", count: 3},
	{name: "adversary", packages: []string{"./test/adversary"}, tests: "^TestAttacks$"},
	{name: "floods", packages: []string{"./test/e2e"}, tests: "^TestFloodsOfPods$", set: fullFloods},
	{name: "floods-outside", packages: []string{"./test/e2e"}, tests: "^TestFloodsFromOutside$", set: fullFloods},
	{name: "fuzz-tables", packages: []string{"./internal/policy/evaluate/oracle"}, tests: "^FuzzTables$", fuzz: fuzzing},
	{name: "fuzz-compile", packages: []string{"./internal/policy"}, tests: "^FuzzCompile$", fuzz: fuzzing},
	{name: "fuzz-pool", packages: []string{"./internal/ipam"}, tests: "^FuzzPool$", fuzz: fuzzing},
	{name: "fuzz-config", packages: []string{"./internal/cni"}, tests: "^FuzzParseConfig$", fuzz: fuzzing},
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

// command is what runs a part once.
type command struct {
	seed uint64
	set  []string
	args []string
}

// String is what a person types to repeat it.
func (c command) String() string {
	return strings.Join(slices.Concat(c.environment(), c.args), " ")
}

// environment is what the tests find in theirs beside what is there.
func (c command) environment() []string {
	return append([]string{"BEELINE_REQUIRE=1", fmt.Sprintf("%s=%d", testenv.SeedVariable, c.seed)}, c.set...)
}

// command gives what runs the part with a seed. A fuzz target has no seed of its own: what it finds it keeps under testdata.
func (p part) command(seed uint64) command {
	args := []string{"go", "test", "-count", fmt.Sprint(max(1, p.count)), "-timeout", "30m"}
	if p.fuzz > 0 {
		args = append(args, "-run", "'^$'", "-fuzz", "'"+p.tests+"'", "-fuzztime", p.fuzz.String(), "-parallel", "1")
	} else {
		args = append(args, "-run", "'"+p.tests+"'")
	}
	return command{seed, p.set, append(args, p.packages...)}
}

// onlyOutOfTime tells whether all that a fuzz target failed by is that its time was over, which Go before 1.27 takes for a failure now and then
// (golang/go issue 75804). What the fuzzer finds it writes to a file, and says so.
func onlyOutOfTime(output []byte) bool {
	return bytes.Contains(output, []byte("\n    context deadline exceeded\nFAIL\n")) && !bytes.Contains(output, []byte("Failing input"))
}

// execute runs a command and gives what it printed.
func execute(ctx context.Context, c command) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.Join(c.args, " "))
	cmd.Env = append(os.Environ(), c.environment()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.CombinedOutput()
}
