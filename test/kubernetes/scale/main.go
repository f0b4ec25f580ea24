// Command scale measures one agent on a node of a large cluster while pods start and end: its memory and CPU share,
// the latency until a change is applied and until a local pod has its network, and the traffic of the API server. The
// objects are in a real API server, on a node of a lab. It needs root.
//
//	go run ./test/kubernetes/scale [--nodes 5000] [--pods 150000] [--programs bin] [--write docs/measured/scale.md]
//
// It fails if a target is missed and --strict is given.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/netlab"
	"github.com/beeline-cni/beeline/test/program"
)

// options are the flags.
type options struct {
	nodes, pods, namespaces, services, endpointsEach, policies int
	// starts is the rate of pod starts per second, adds that on the measured node, and churn the duration.
	starts, adds float64
	churn, idle  time.Duration
	changes      int

	programs, kubernetes, write, profiles string
	strict                                bool

	begin time.Time
	// dir has the files of etcd and the API server.
	dir string
	lab *testbed.Lab
	// node is the measured node. etcd and the API server run in its network namespace.
	node   *testbed.Node
	client *http.Client
}

func (o *options) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0f s: %s\n", time.Since(o.begin).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	o := &options{begin: time.Now()}
	o.client = &http.Client{Transport: &http.Transport{
		DialContext:         o.dial,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // the namespace has no other process on its loopback
		MaxIdleConnsPerHost: 64,
	}}
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
	flag.StringVar(&o.programs, "programs", "bin", "`directory` with the agent to measure and its plugin")
	flag.StringVar(&o.kubernetes, "kubernetes", plan.Options{}.Defaults().Kubernetes, "version of Kubernetes")
	flag.StringVar(&o.write, "write", "", "`file` to write the figures to: what comes behind the heading \"## Figures\" is replaced")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` to write the agent's log and profiles to (for an agent built with the tag pprof)")
	flag.BoolVar(&o.strict, "strict", false, "fail if a target is missed")
	flag.Parse()
	program.Main("scale", func(ctx context.Context, _ []string) error { return run(ctx, o) })
}

// run makes a lab of two nodes, the measured one and one that replies for all others, and measures.
func run(ctx context.Context, o *options) (err error) {
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
	if o.dir, err = os.MkdirTemp("", "beeline-scale-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	const name = "scale"
	if err := testbed.Down(ctx, name); err != nil { // what a killed run has left
		return err
	}
	if o.lab, err = testbed.Up(ctx, testbed.Options{Name: name, Nodes: 2}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.lab.Down(context.WithoutCancel(ctx))) }()
	o.node = o.lab.Node(0)
	for _, c := range []struct {
		node  *testbed.Node
		words string
	}{
		{o.node, fmt.Sprintf("address add %s/%d dev %s", nodeAddress(0), link, testbed.Uplink)},
		// The kernel replies for all addresses of a local route; the measured node's is elsewhere.
		{o.lab.Node(1), "route add local 10.200.0.0/16 dev lo"},
		{o.lab.Node(1), fmt.Sprintf("route add %s dev %s table local", nodeAddress(0), testbed.Uplink)},
	} {
		if _, err := c.node.Output(ctx, "ip", strings.Fields(c.words)...); err != nil {
			return fmt.Errorf("%s: %w", c.words, err)
		}
	}
	return measure(ctx, o)
}

// dial connects to an address in the network namespace of the measured node.
func (o *options) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = o.node.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func measure(ctx context.Context, o *options) error {
	server, err := startServer(ctx, o)
	if err != nil {
		return err
	}
	agent, err := startAgent(o, server)
	if err != nil {
		return err
	}
	f, err := agent.measure(ctx)
	if o.profiles != "" {
		err = errors.Join(err, file.Copy(filepath.Join(o.profiles, "agent.log"), netlab.LogFile(o.node), 0o644))
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
