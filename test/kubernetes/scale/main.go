// Command scale measures one agent on a node of a large cluster while pods start and end: its memory and CPU share,
// the latency until a change is applied and until a local pod has its network, and the traffic of the API server. The
// objects are in a real API server, all of it in namespaces of its own. It needs root.
//
//	go run ./test/kubernetes/scale [--nodes 5000] [--pods 150000] [--agent bin/beeline-agent] [--plugin bin/beeline-cni] [--write docs/measured/scale.md]
//
// It fails if a target is missed and --strict is given.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// options are the flags.
type options struct {
	nodes, pods, namespaces, services, endpointsEach, policies int
	// starts is the rate of pod starts per second, adds that on the measured node, and churn the duration.
	starts, adds float64
	churn, idle  time.Duration
	changes      int

	agent, plugin, kubernetes, write, profiles string
	strict                                     bool
	// dir has all files, cgroup is for the agent's socket programs; set in the namespaces only.
	dir, cgroup string
	begin       time.Time
}

func (o *options) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0f s: %s\n", time.Since(o.begin).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	o := &options{begin: time.Now()}
	flag.IntVar(&o.nodes, "nodes", 5000, "nodes of the cluster, at least 500")
	flag.IntVar(&o.pods, "pods", 150000, "pods of the cluster")
	flag.IntVar(&o.namespaces, "namespaces", 1000, "namespaces of the cluster")
	flag.IntVar(&o.services, "services", 10000, "Services of the cluster")
	flag.IntVar(&o.endpointsEach, "endpoints", 25, "endpoints of each Service")
	flag.IntVar(&o.policies, "policies", 5000, "NetworkPolicies of the cluster")
	flag.Float64Var(&o.starts, "starts", 20, "pods that start in a second, and as many end")
	flag.Float64Var(&o.adds, "adds", 2, "those of them that start on the node that is measured")
	flag.DurationVar(&o.churn, "churn", 90*time.Second, "for how long")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "for how long nothing happens")
	flag.IntVar(&o.changes, "changes", 100, "changes of each kind that are timed meanwhile")
	flag.StringVar(&o.agent, "agent", "bin/beeline-agent", "program to measure")
	flag.StringVar(&o.plugin, "plugin", "bin/beeline-cni", "its CNI plugin")
	flag.StringVar(&o.kubernetes, "kubernetes", plan.Options{}.Defaults().Kubernetes, "version of Kubernetes")
	flag.StringVar(&o.write, "write", "", "`file` to write the figures to: what comes behind the heading \"## Figures\" is replaced")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` to write the agent's log and profiles to (for an agent built with the tag pprof)")
	flag.BoolVar(&o.strict, "strict", false, "fail if a target is missed")
	flag.StringVar(&o.dir, "inside", "", "for the program itself: it is in its namespaces, and this is its directory")
	flag.StringVar(&o.cgroup, "cgroup", "", "for the program itself: where the agent has its programs at sockets")
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

// enter runs this program again in its own network, mount and process namespaces, which end with it.
func enter(ctx context.Context, o *options) (err error) {
	if o.profiles != "" {
		if err := os.MkdirAll(o.profiles, 0o755); err != nil { // fail before the cluster is up
			return err
		}
	}
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return err
	}
	if err := kubebuild.Build(ctx, cache, o.kubernetes, []string{"etcd", "kube-apiserver"}, o.say); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "beeline-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cgroup, err := makeCgroup(filepath.Base(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(cgroup)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(ctx, self, append(os.Args[1:], "--inside", dir, "--cgroup", cgroup)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	return child.Run()
}

// measure runs in the namespaces.
func measure(ctx context.Context, o *options) error {
	if err := prepare(ctx, o.dir); err != nil {
		return err
	}
	server, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	agent, err := startAgent(ctx, o, server)
	if err != nil {
		return err
	}
	f, err := agent.measure(ctx)
	if o.profiles != "" {
		err = errors.Join(err, file.Copy(filepath.Join(o.profiles, "agent.log"), filepath.Join(o.dir, "agent.log"), 0o644))
	}
	if err != nil {
		return err
	}
	text := f.text(ctx, o)
	fmt.Print(text)
	if o.write != "" {
		if err := publish(o.write, text); err != nil {
			return err
		}
	}
	if missed := missed(text); o.strict && len(missed) > 0 {
		return fmt.Errorf("missed: %s", missed)
	}
	return nil
}
