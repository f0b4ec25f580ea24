// Command vm runs tests on other kernels: it boots Debian's kernels in emulated machines that run only the tests. It prints
// `go test -json` events; build/gotestsum.sh sums them up.
//
//	build/gotestsum.sh vm 'go run ./test/vm [-quick] [-kernel 6.1] [-run TestLoad] [package ...]'
//
// selection.go decides which test runs on which kernel. The tests of a kernel are distributed over all machines that run at once.
//
// Emulation shows whether things work, not how fast they are.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/test/program"
)

func main() { program.Main("vm", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	only := flags.String("kernel", "", "boot only this `version` of the table in kernels.go")
	quick := flags.Bool("quick", false, "run only the tests that depend most on the kernel, as CI does: 10 minutes instead of 45")
	match := flags.String("run", ".", "run only tests whose names match this `pattern`")
	device := flags.String("device", "", "give pods this `kind` of device, veth or netkit, instead of those of the table")
	limit := flags.Duration("timeout", 4*time.Hour, "maximum time of a machine")
	accel := flags.String("accel", "tcg,thread=multi", "QEMU's accelerator; kvm is faster where it works")
	atOnce := flags.Int("machines", min(runtime.NumCPU(), maxMachines), "how many machines run at once, of one CPU and 2 GB each")
	progress := flags.Bool("v", false, "copy the tests' output to standard error as it comes")
	instructions := flags.Bool("instructions", false, "run only "+instructionsDir+", on a CPU whose clock counts instructions, and print its counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kernels, err := selectKernels(*only)
	if err != nil {
		return err
	}
	if *quick {
		for i, k := range kernels {
			kernels[i] = k.hurried()
		}
	}
	var runs []kernel
	for _, k := range kernels {
		runs = append(runs, k.perDevice(*device)...)
	}
	packages := flags.Args()
	switch {
	case *instructions:
		packages = []string{instructionsDir}
	case len(packages) == 0:
		packages = testedPackages
	}

	work, err := os.MkdirTemp("", "beeline-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tests, err := buildTests(ctx, work, packages, *match)
	if err != nil {
		return err
	}
	store, err := openStore()
	if err != nil {
		return err
	}
	// A machine has one CPU, a thread here, so one machine runs per core. A second CPU would not help: most of the time is the verifier's,
	// which uses one. The kernel also patches its code when programs are attached, and emulation may fail while another CPU runs that code.
	var all []machine
	for _, k := range runs {
		chosen, most := k.choose(tests)
		if most == 0 {
			continue
		}
		parts := min(*atOnce, most) // every machine has a test
		image, err := buildImage(ctx, store, work, k, chosen, parts)
		if err != nil {
			return fmt.Errorf("build image of %s: %w", k, err)
		}
		for part := range parts {
			console := filepath.Join(work, fmt.Sprintf("%s.%s.%d.console", k.version, k.device, part))
			all = append(all, machine{kernel: k, image: image, part: part, parts: parts, console: console, accel: *accel, limit: *limit, progress: *progress, instructions: *instructions})
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("no test of %s matches %q on these kernels", strings.Join(packages, ", "), *match)
	}
	return runAll(ctx, all, *atOnce)
}

// maxMachines is the maximum of machines that run at once unless the flag says otherwise.
const maxMachines = 4

// runAll runs the machines in order, atOnce at a time.
func runAll(ctx context.Context, all []machine, atOnce int) error {
	free := make(chan struct{}, atOnce)
	failures := make([]error, len(all))
	var machines sync.WaitGroup
	for i, m := range all {
		free <- struct{}{}
		machines.Go(func() {
			defer func() { <-free }()
			failures[i] = runTwice(ctx, m)
		})
	}
	machines.Wait()
	for i, err := range failures {
		if err != nil {
			return fmt.Errorf("run tests on %s: %w", all[i], err)
		}
	}
	return nil
}
