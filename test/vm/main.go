// Command vm runs tests of this project on other kernels: it boots Debian's kernels in emulated machines whose
// only program is the tests. It prints what happens as `go test -json` does; build/gotestsum.sh sums it up.
//
//	build/gotestsum.sh vm 'go run ./test/vm [-quick] [-kernel 6.1] [-run TestLoad] [package ...]'
//
// Which test runs on which kernel is in selection.go. The tests of a kernel are dealt to as many machines as run side by side.
//
// Emulation shows that things work, never how fast they are.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "vm: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	only := flags.String("kernel", "", "boot only this `version` of the table in kernels.go")
	quick := flags.Bool("quick", false, "run only the tests that have most to say of a kernel, as CI does: a quarter of an hour instead of three quarters")
	match := flags.String("run", ".", "run only tests whose names match this `pattern`")
	limit := flags.Duration("timeout", 2*time.Hour, "how long a machine may live")
	accel := flags.String("accel", "tcg,thread=multi", "QEMU's accelerator; kvm is faster where it works")
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
	packages := flags.Args()
	if len(packages) == 0 {
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
	// A machine has one CPU, a thread here, and so as many run side by side as there are cores. Two CPUs would not make it faster: the
	// verifier, whose time is most of it, uses one. And the kernel patches its own code when programs are attached and detached, which
	// software emulation does not always get right while another CPU runs that code.
	atOnce := min(runtime.NumCPU(), memoryFor)
	var all []machine
	for _, k := range kernels {
		chosen, most := k.choose(tests)
		parts := min(atOnce, most) // none has nothing to do
		image, err := buildImage(ctx, store, work, k, chosen, parts)
		if err != nil {
			return fmt.Errorf("build image of Linux %s: %w", k.version, err)
		}
		for part := range parts {
			console := filepath.Join(work, fmt.Sprintf("%s.%d.console", k.version, part))
			all = append(all, machine{kernel: k, image: image, part: part, parts: parts, console: console, accel: *accel, limit: *limit})
		}
	}
	return runAll(ctx, all, atOnce)
}

// memoryFor is how many machines run side by side at most, each with 2 GB.
const memoryFor = 4

// runAll runs so many machines at a time, the first ones first.
func runAll(ctx context.Context, all []machine, atOnce int) error {
	p := newProgress(len(all))
	defer p.tell(os.Stderr, time.Minute)()
	free := make(chan struct{}, atOnce)
	failures := make([]error, len(all))
	var machines sync.WaitGroup
	for i, m := range all {
		free <- struct{}{}
		machines.Go(func() {
			defer func() { <-free }()
			p.started()
			failures[i] = runPatiently(ctx, m, p)
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
