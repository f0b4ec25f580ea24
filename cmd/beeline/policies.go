package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newPoliciesCommand(e cli.Env) *cobra.Command {
	var which agentapi.PolicyFilter
	cmd := newListCommand(e, "policies [NAME]", "List NetworkPolicies with their state on this node",
		func(c *agentapi.Client, ctx context.Context) ([]agentapi.NetworkPolicy, error) {
			all, err := c.Policies(ctx, which)
			return oneOrMore(all, err, "NetworkPolicy", which.Namespace, which.Name, "")
		},
		printPolicies, func(p agentapi.NetworkPolicy) string { return "networkpolicy.networking.k8s.io/" + p.Name })
	return byName(cmd, "NetworkPolicies", &which.Namespace, &which.Name)
}

func printPolicies(w io.Writer, all []agentapi.NetworkPolicy, wide bool) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "No NetworkPolicies found.")
		return nil
	}
	rows := [][]string{{"POLICY", "DIRECTIONS", "RULES", "LOCAL PODS", "STATE", "SINCE"}}
	for _, p := range all {
		state := p.State
		if p.Reason != "" {
			state += ": " + p.Reason
		}
		since := "-"
		if !p.Since.IsZero() {
			since = p.Since.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			p.Namespace + "/" + p.Name, dash(strings.Join(p.Directions, ", ")), ruleCount(p), podNames(p.Pods), state, since,
		})
	}
	return printTable(w, rows, wide, "SINCE")
}

// ruleCount counts the rules of each direction.
func ruleCount(p agentapi.NetworkPolicy) string {
	var all []string
	for _, d := range p.Directions {
		rules := p.IngressRules
		if d == agentapi.DirectionEgress {
			rules = p.EgressRules
		}
		all = append(all, fmt.Sprint(rules))
	}
	return dash(strings.Join(all, ", "))
}

// podNames lists some pods without their namespace, which is the policy's.
func podNames(pods []string) string {
	const some = 3
	var all []string
	for _, p := range pods[:min(some, len(pods))] {
		_, name, _ := strings.Cut(p, "/")
		all = append(all, name)
	}
	if more := len(pods) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return dash(strings.Join(all, ", "))
}

// policyRows counts what this node enforces, with the capacity of its tables.
func policyRows(s *agentapi.Status) [][]string {
	p, counts := s.Policy, newCounts(s)
	if !p.Enforced {
		return counts.rows
	}
	policies := fmt.Sprint(p.Policies)
	if !p.Synced {
		policies = "not synced"
	}
	counts.add("policies", policies, "")
	counts.add("policies that deny all, in error", p.Closed, "")
	counts.add("policies not enforced yet", p.Pending, "")
	counts.add("local pods that policies select", p.Pods, "policy_pods")
	counts.add("local pods denied all traffic, in error", p.ClosedPods, "")
	counts.add("rule sets", p.Sets, "")
	counts.add("identities", p.Identities, "identities")
	counts.add("CIDR identities", p.Blocks, "identity_cidrs")
	counts.add("policy entries", p.Entries, "policies")
	counts.add("port ranges", p.Ports, "policy_ports")
	counts.add("conntrack entries", counts.maps["conntrack"].Entries, "conntrack")
	return counts.rows
}
