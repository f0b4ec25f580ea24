package network

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// iptablesPolicies is the plugin ptp with NetworkPolicies as a classic policy agent enforces them: chains of iptables
// for each selected pod and each policy, behind connection tracking. The lab itself is the agent.
type iptablesPolicies struct{ *Reference }

// IptablesPolicies is that network.
var IptablesPolicies = iptablesPolicies{ptp}

// Name is "ptp-iptables-policy".
func (iptablesPolicies) Name() string { return "ptp-iptables-policy" }

// Description is for the report.
func (iptablesPolicies) Description() string {
	return "ptp with the same small policies as rules of iptables: established connections first, then a chain for each pod and each policy, an address and a port in each rule"
}

// Present is a few policies that allow what is measured.
func (iptablesPolicies) Present() policies.Presence { return policies.Allowing }

// Watches is false: Enforce applies policies.
func (iptablesPolicies) Watches() bool { return false }

// Unsupported names what ptp lacks.
func (c iptablesPolicies) Unsupported() string {
	return cmp.Or(c.Reference.Unsupported(), lacks(policyMatches))
}

// Up makes what ptp has, and the chain that all others hang on.
func (c iptablesPolicies) Up(ctx context.Context, lab *testbed.Lab) error {
	if err := c.Reference.Up(ctx, lab); err != nil {
		return err
	}
	for _, node := range lab.Nodes() {
		for _, args := range [][]string{{"-N", policyChain}, {"-I", "FORWARD", "1", "-j", policyChain}} {
			if _, err := node.Output(ctx, "iptables", args...); err != nil {
				return fmt.Errorf("hook policies on %s: %w", node.Name, err)
			}
		}
	}
	return nil
}

// Enforce writes the rules of every node anew, as an agent does that has no memory of the rules before, on all nodes at
// once, and says how long the command that takes them took on the slowest.
func (iptablesPolicies) Enforce(ctx context.Context, lab *testbed.Lab, server *apiserver.Server) (took time.Duration, err error) {
	nodes := lab.Nodes()
	times, errs := make([]time.Duration, len(nodes)), make([]error, len(nodes))
	var wait sync.WaitGroup
	for i, node := range nodes {
		wait.Go(func() { times[i], errs[i] = enforceOn(ctx, node, server) })
	}
	wait.Wait()
	return slices.Max(times), errors.Join(errs...)
}

// enforceOn writes the rules of one node.
func enforceOn(ctx context.Context, node *testbed.Node, server *apiserver.Server) (took time.Duration, err error) {
	stale, err := policyChains(ctx, node)
	if err != nil {
		return 0, fmt.Errorf("read policies on %s: %w", node.Name, err)
	}
	rules, err := policyRules(server, node.Name, stale)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := node.Input(ctx, rules, "iptables-restore", "--noflush"); err != nil {
		return 0, fmt.Errorf("write policies on %s: %w", node.Name, err)
	}
	return time.Since(begin), nil
}

// policyChains are the chains of pods and policies that a node has.
func policyChains(ctx context.Context, node *testbed.Node) (chains []string, err error) {
	out, err := node.Output(ctx, "iptables-save", "--table", "filter")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(out) {
		if name, ok := bytes.CutPrefix(line, []byte(":")); ok && bytes.HasPrefix(name, []byte(policyPrefix)) {
			name, _, _ = bytes.Cut(name, []byte(" "))
			chains = append(chains, string(name))
		}
	}
	return chains, nil
}

// Facts add how many rules of policy the first node has.
func (c iptablesPolicies) Facts(ctx context.Context, lab *testbed.Lab) map[string]string {
	facts := c.Reference.Facts(ctx, lab)
	if out, err := lab.Node(0).Output(ctx, "iptables-save", "--table", "filter"); err == nil {
		facts["policy rules"] = strconv.Itoa(bytes.Count(out, []byte("\n-A "+policyPrefix)) + bytes.Count(out, []byte("\n-A "+policyChain+" ")))
	}
	return facts
}
