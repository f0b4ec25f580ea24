// Command vm runs tests of this project on other kernels: it boots Debian's kernels in emulated machines whose
// only program is the tests. It prints what happens as `go test -json` does; build/testrun makes that readable.
//
//	go run ./build/testrun -- go run ./test/vm [-kernel 6.1] [package ...]
//
// Emulation shows that things work, never how fast they are.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
	limit := flags.Duration("timeout", 40*time.Minute, "how long a machine may live")
	accel := flags.String("accel", "tcg,thread=multi", "QEMU's accelerator; kvm is faster where it works")
	if err := flags.Parse(args); err != nil {
		return err
	}
	kernels, err := selectKernels(*only)
	if err != nil {
		return err
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
	tests, err := buildTests(ctx, work, packages)
	if err != nil {
		return err
	}
	store, err := openStore()
	if err != nil {
		return err
	}
	images := make([]image, len(kernels))
	for i, k := range kernels {
		if images[i], err = buildImage(ctx, store, work, k, tests); err != nil {
			return fmt.Errorf("build image of Linux %s: %w", k.version, err)
		}
	}

	// A machine has one CPU, a thread here, and so as many run side by side as there are cores. Two CPUs would not make it faster: the
	// verifier, whose time is most of it, uses one. And the kernel patches its own code when programs are attached and detached, which
	// software emulation does not always get right while another CPU runs that code.
	free := make(chan struct{}, runtime.NumCPU())
	failures := make([]error, len(kernels))
	var machines sync.WaitGroup
	for i, k := range kernels {
		machines.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			failures[i] = runPatiently(ctx, machine{kernel: k, image: images[i], tests: tests, accel: *accel, limit: *limit})
		})
	}
	machines.Wait()
	for i, err := range failures {
		if err != nil {
			return fmt.Errorf("run tests on Linux %s: %w", kernels[i].version, err)
		}
	}
	return nil
}
