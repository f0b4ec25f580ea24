package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/connectivity"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

const (
	// patience is how long policies may take to be active.
	patience = 30 * time.Second
	// deniedPort has a listener and no policy allows it.
	deniedPort = 7001
	// holdPause is between two attempts to connect.
	holdPause = 20 * time.Millisecond
)

// probe is a connection that shows whether policies are active.
type probe struct {
	what  string
	from  testbed.Netns
	to    netip.AddrPort
	works bool
}

// enforce puts the policies and waits until they are active: what they allow works, nothing else does, and the tables
// have all of them. Otherwise a network without policies might be measured.
func (m *member) enforce(ctx context.Context) (err error) {
	if m.enforcer == nil {
		return nil
	}
	server := m.Server[result.CrossNode].Addresses[0]
	objects := append(m.present.Others(), m.present.ForMeasured(allowedPorts(), m.Client.Addresses[0], server)...)
	if err := m.Put(ctx, objects...); err != nil {
		return fmt.Errorf("put policies of %s: %w", m.Name(), err)
	}
	probes, err := m.probes(ctx)
	if err != nil {
		return err
	}
	for begin := time.Now(); ; {
		wrong, err := m.wrong(ctx, len(objects), probes)
		switch {
		case err != nil:
			return err
		case wrong == "":
			if m.enforcer.Watches() {
				m.tables, err = m.tablesOf(ctx, serverNode)
			}
			return err
		case time.Since(begin) > patience:
			return fmt.Errorf("policies of %s are not active after %v: %s%s", m.Name(), patience, wrong, m.agentsSay(ctx))
		}
		if err := wait.For(ctx, holdPause); err != nil {
			return err
		}
	}
}

// probes are the connections to try.
func (m *member) probes(ctx context.Context) (all []probe, err error) {
	listen := func(pod *testbed.Pod) netip.AddrPort {
		at, e := m.Listen(ctx, pod, deniedPort, 0)
		err = errors.Join(err, e)
		return at
	}
	server := m.Server[result.CrossNode]
	echo := netip.AddrPortFrom(server.Addresses[0], suite.EchoPort)
	all = []probe{{"from the client to the server", m.Client.Netns, echo, true}}
	switch {
	case m.present.Selects():
		all = append(all,
			probe{"from the client to another port of the server", m.Client.Netns, listen(server), false},
			probe{"from the server to another port of the client", server.Netns, listen(m.Client), false})
	case m.present.Bystanders():
		near, far := m.bystanders[0], m.bystanders[1]
		to := listen(far)
		all = append(all,
			probe{"from its own node to the far bystander", m.Lab.Node(1).Netns, to, true},
			probe{"from the client to the far bystander", m.Client.Netns, to, false},
			probe{"from the near bystander to the server", near.Netns, echo, false})
	}
	return all, err
}

// wrong says what shows that the wanted number of policies is not active; empty if nothing does.
func (m *member) wrong(ctx context.Context, wanted int, probes []probe) (string, error) {
	works, errs := make([]bool, len(probes)), make([]error, len(probes))
	var wait sync.WaitGroup
	for i, p := range probes {
		wait.Go(func() { works[i], errs[i] = connectivity.Connect(ctx, p.from, p.to, corev1.ProtocolTCP, p.works) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	for i, p := range probes {
		if errs[i] != nil { // perhaps the network is not ready yet
			return fmt.Sprintf("a connection could not be tried, %s: %v", p.what, errs[i]), nil
		} else if works[i] && !p.works {
			return "a connection works that no policy allows, " + p.what, nil
		} else if p.works && !works[i] {
			return "a connection does not work that the policies allow, " + p.what, nil
		}
	}
	return m.missing(ctx, wanted)
}

// missing says what the tables of the agents lack.
func (m *member) missing(ctx context.Context, wanted int) (string, error) {
	if !m.enforcer.Watches() {
		return "", nil
	}
	for i, node := range m.Lab.Nodes() {
		t, err := m.tablesOf(ctx, i)
		if err != nil {
			return "", err
		}
		blocks := m.present.Blocks()
		if t.Policies != wanted || m.present.External() && t.Prefixes != blocks {
			return fmt.Sprintf("%s has %d policies of %d, %d prefixes of %d in its tables", node.Name, t.Policies, wanted, t.Prefixes, blocks), nil
		}
	}
	return "", nil
}

// tablesOf asks the agent of a node for its tables.
func (m *member) tablesOf(ctx context.Context, node int) (*result.PolicyTables, error) {
	status, err := m.AgentStatus(ctx, node)
	if err != nil {
		return nil, err
	}
	t := &result.PolicyTables{
		Network: m.Name(), Policies: status.Policy.Policies, LocalPods: status.Endpoints, Selected: status.Policy.Pods, Sets: status.Policy.Sets,
	}
	// What the kernel has, not what the agent believes.
	counts := map[string]*int{"policy_pods": new(int), "identities": &t.Addresses, "identity_cidrs": &t.Prefixes, "policies": &t.Entries, "policy_ports": &t.Ports}
	for _, m := range status.Maps {
		if count := counts[m.Name]; count != nil {
			*count = m.Entries
			t.Bytes += m.Bytes
		}
	}
	return t, nil
}

// agentsSay is what the agents report of policies, to find out why they are not active.
func (m *member) agentsSay(ctx context.Context) string {
	if !m.enforcer.Watches() {
		return ""
	}
	var all strings.Builder
	for i, node := range m.Lab.Nodes() {
		status, err := m.AgentStatus(ctx, i)
		if err != nil {
			fmt.Fprintf(&all, "; %v", err)
			continue
		}
		fmt.Fprintf(&all, "; %s: %+v, problems %q", node.Name, status.Policy, status.Problems)
	}
	return all.String()
}
