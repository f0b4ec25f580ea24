// Command beeline-bench runs in the pods of `beeline-lab bench --kubeconfig`, which starts it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "wait":
		wait(ctx)
	case len(os.Args) == 2 && os.Args[1] == "work":
		if err := worker.Loop(ctx, testbed.Netns{}, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "beeline-bench: %v\n", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: beeline-bench wait (the pod's first process) | beeline-bench work (requests on standard input)")
		os.Exit(2)
	}
}

// wait keeps a pod alive until SIGTERM. As process 1 of the pod it reaps orphans.
func wait(ctx context.Context) {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return
		case <-orphans:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
