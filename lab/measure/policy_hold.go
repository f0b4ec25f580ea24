package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/connectivity"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

const (
	// policyPatience is how long policies of a testbed may take to be in force.
	policyPatience = 30 * time.Second
	// refusedPort is one that somebody listens at and no policy allows.
	refusedPort = 7001
	// holdPause is from one time that connections are tried to the next.
	holdPause = 20 * time.Millisecond
)

// probe is a connection by which it is seen whether policies hold.
type probe struct {
	what  string
	from  testbed.Place
	to    netip.AddrPort
	works bool
}

// govern puts the policies and waits until they hold: what they allow works, what they do not does not, and the tables have all of them.
// Otherwise a network without policies might be measured.
func (l *policyTestbed) govern(ctx context.Context) (err error) {
	if l.policed == nil {
		return nil
	}
	server := l.server[result.CrossNode].Addresses[0]
	objects := append(l.policed.Present().Others(), l.policed.Present().ForMeasured(policyPorts(), l.client.Addresses[0], server)...)
	if err := l.put(ctx, objects...); err != nil {
		return fmt.Errorf("put policies of %s: %w", l.network.Name(), err)
	}
	probes, end, err := l.probes(ctx)
	defer end()
	if err != nil {
		return err
	}
	for begin := time.Now(); ; {
		wrong, err := l.wrong(ctx, len(objects), probes)
		switch {
		case err != nil:
			return err
		case wrong == "":
			l.tables, err = l.readTables(ctx)
			return err
		case time.Since(begin) > policyPatience:
			return fmt.Errorf("policies of %s are not in force after %v: %s%s", l.network.Name(), policyPatience, wrong, l.agentsSay(ctx))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(holdPause):
		}
	}
}

// probes are the connections to try, at ports where somebody listens until end is called, which it may be after an error too.
func (l *policyTestbed) probes(ctx context.Context) (all []probe, end func(), err error) {
	var closers []func() error
	end = func() {
		for _, closer := range closers {
			_ = closer()
		}
	}
	listen := func(pod *testbed.Pod) (at netip.AddrPort) {
		at = netip.AddrPortFrom(pod.Addresses[0], refusedPort)
		listener, e := convergence.Listen(ctx, l.lab.Place(pod), at, 0)
		if err = errors.Join(err, e); e == nil {
			closers = append(closers, listener.Close)
		}
		return at
	}
	server := l.server[result.CrossNode]
	echo := netip.AddrPortFrom(server.Addresses[0], echoPort)
	all = []probe{{"from the client to the server", l.lab.Place(l.client), echo, true}}
	switch present := l.policed.Present(); {
	case present.Governed():
		all = append(all,
			probe{"from the client to another port of the server", l.lab.Place(l.client), listen(server), false},
			probe{"from the server to another port of the client", l.lab.Place(server), listen(l.client), false})
	case present.Bystanders():
		near, far := l.bystanders[0], l.bystanders[1]
		to := listen(far)
		all = append(all,
			probe{"from its own node to the far bystander", l.lab.Node(1).Place(), to, true},
			probe{"from the client to the far bystander", l.lab.Place(l.client), to, false},
			probe{"from the near bystander to the server", l.lab.Place(near), echo, false})
	}
	return all, end, err
}

// wrong says what shows that the wanted number of policies is not in force, empty if nothing does.
func (l *policyTestbed) wrong(ctx context.Context, wanted int, probes []probe) (string, error) {
	works, errs := make([]bool, len(probes)), make([]error, len(probes))
	var wait sync.WaitGroup
	for i, p := range probes {
		wait.Go(func() { works[i], errs[i] = connectivity.Ask(ctx, p.from, p.to, corev1.ProtocolTCP, p.works) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	for i, p := range probes {
		if errs[i] != nil { // for good, or because the network is not ready yet
			return fmt.Sprintf("a connection could not be tried, %s: %v", p.what, errs[i]), nil
		} else if works[i] && !p.works {
			return "a connection works that none allows, " + p.what, nil
		} else if p.works && !works[i] {
			return "a connection does not work that nothing forbids, " + p.what, nil
		}
	}
	return l.missing(ctx, wanted)
}

// missing says what the tables of the agents lack.
func (l *policyTestbed) missing(ctx context.Context, wanted int) (string, error) {
	if !l.policed.Watches() {
		return "", nil
	}
	for i, node := range l.lab.Nodes() {
		t, err := l.tablesOf(ctx, i)
		if err != nil {
			return "", err
		}
		prefixes, singles := policies.Split(l.policed.Present().Blocks())
		if t.Policies != wanted || l.policed.Present().Nameless() && (t.Prefixes != prefixes || t.Addresses < singles) {
			return fmt.Sprintf("%s has %d policies of %d, %d prefixes of %d, %d addresses of at least %d in its tables",
				node.Name, t.Policies, wanted, t.Prefixes, prefixes, t.Addresses, singles), nil
		}
	}
	return "", nil
}

// readTables gives what the server's node has in force; nil where nobody has tables.
func (l *policyTestbed) readTables(ctx context.Context) (*result.PolicyTables, error) {
	if !l.policed.Watches() {
		return nil, nil
	}
	return l.tablesOf(ctx, 1)
}

// tablesOf asks the agent of a node.
func (l *policyTestbed) tablesOf(ctx context.Context, node int) (*result.PolicyTables, error) {
	status, err := agentapi.NewClient(network.AgentSocket(l.network, l.lab.Node(node))).Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask agent of %s: %w", l.lab.Node(node).Name, err)
	}
	t := &result.PolicyTables{
		Network: l.network.Name(), Policies: status.Policy.Policies, LocalPods: status.Endpoints, Selected: status.Policy.Pods, Sets: status.Policy.Sets,
	}
	// What the kernel has, not what the agent thinks that it has.
	counts := map[string]*int{"policy_pods": new(int), "identities": &t.Addresses, "identity_cidrs": &t.Prefixes, "policies": &t.Entries, "policy_ports": &t.Ports}
	for _, m := range status.Maps {
		if count := counts[m.Name]; count != nil {
			*count = m.Entries
			t.Bytes += m.Bytes
		}
	}
	return t, nil
}

// agentsSay is what the agents say of policies, for whoever has to find out why they do not hold.
func (l *policyTestbed) agentsSay(ctx context.Context) string {
	if !l.policed.Watches() {
		return ""
	}
	var all strings.Builder
	for _, node := range l.lab.Nodes() {
		status, err := agentapi.NewClient(network.AgentSocket(l.network, node)).Status(ctx)
		if err != nil {
			fmt.Fprintf(&all, "; %s: %v", node.Name, err)
			continue
		}
		fmt.Fprintf(&all, "; %s: %+v, problems %q", node.Name, status.Policy, status.Problems)
	}
	return all.String()
}
