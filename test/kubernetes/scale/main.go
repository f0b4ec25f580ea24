// Command scale measures one agent on a node of a large cluster: what memory it takes, and how long it takes until a change
// is in force. The objects are in a real API server, all of it in namespaces of its own. It needs root.
//
//	go run ./test/kubernetes/scale [--nodes 1000] [--pods 30000] [--beeline bin/beeline]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/kubernetes/binaries"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// options are what can be chosen.
type options struct {
	nodes, pods, changes int
	beeline, kubernetes  string
	maxRSS               int
	// dir is where everything is kept; set in the namespaces only.
	dir string
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 1000, "nodes of the cluster")
	flag.IntVar(&o.pods, "pods", 30000, "pods of the cluster")
	flag.IntVar(&o.changes, "changes", 200, "changes of pods, and of nodes, that are timed")
	flag.StringVar(&o.beeline, "beeline", "bin/beeline", "program to measure")
	flag.StringVar(&o.kubernetes, "kubernetes", plan.Options{}.Defaults().Kubernetes, "version of Kubernetes")
	flag.IntVar(&o.maxRSS, "max-rss", 0, "fail if the agent ever takes more memory than this, in MiB; 0 only measures")
	flag.StringVar(&o.dir, "inside", "", "for the program itself: it is in its namespaces, and this is its directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := enter
	if o.dir != "" {
		work = measure
	}
	if err := work(ctx, o); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// enter runs this program again in network, mount and process namespaces of its own, with which everything ends.
func enter(ctx context.Context, o options) (err error) {
	cache, err := binaries.OpenCache()
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if err := binaries.Build(ctx, cache, o.kubernetes, []string{"etcd", "kube-apiserver"}, say); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "beeline-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, append(os.Args[1:], "--inside", dir)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	return child.Run()
}

// measure does the work, in the namespaces.
func measure(ctx context.Context, o options) error {
	if err := prepare(ctx, o.dir); err != nil {
		return err
	}
	server, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := server.fill(ctx, o); err != nil {
		return err
	}
	fmt.Printf("objects: %d nodes, %d pods, %d namespaces, %d Services with slices, %d policies (made in %.0f s)\n",
		o.nodes, o.pods, namespaces, services, policies, time.Since(begin).Seconds())
	agent, err := startAgent(ctx, o, server)
	if err != nil {
		return err
	}
	return agent.measure(ctx, o, server)
}
