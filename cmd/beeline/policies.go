package main

import (
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
	cmd := newReadArgsCommand(e, "policies [NAME]", "List NetworkPolicies with their state on this node",
		cli.Arguments(cobra.MaximumNArgs(1)),
		func(cmd *cobra.Command, args []string, c *agentapi.Client) ([]agentapi.NetworkPolicy, error) {
			if len(args) == 1 {
				which.Name = args[0]
				if namespace, name, ok := strings.Cut(args[0], "/"); ok {
					which.Namespace, which.Name = namespace, name
				}
			}
			return c.Policies(cmd.Context(), which)
		},
		printPolicies)
	cmd.Flags().StringVarP(&which.Namespace, "namespace", "n", "", "show NetworkPolicies of this namespace only")
	return cmd
}

func printPolicies(w io.Writer, all []agentapi.NetworkPolicy) error {
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
	return cli.Table(w, rows)
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
	p := s.Policy
	rows := [][]string{{"COUNT OF", "CURRENT", "CAPACITY"}}
	if !p.Enforced {
		return rows
	}
	maps := map[string]agentapi.Map{}
	for _, m := range s.Maps {
		maps[m.Name] = m
	}
	add := func(name string, current any, table string) {
		capacity := "-"
		if m, ok := maps[table]; ok {
			capacity = fmt.Sprint(m.MaxEntries)
		}
		rows = append(rows, []string{name, fmt.Sprint(current), capacity})
	}
	policies := fmt.Sprint(p.Policies)
	if !p.Synced {
		policies = "not synced"
	}
	add("policies", policies, "")
	add("policies that deny all, in error", p.Closed, "")
	add("policies not enforced yet", p.Pending, "")
	add("local pods that policies select", p.Pods, "policy_pods")
	add("local pods denied all traffic, in error", p.ClosedPods, "")
	add("rule sets", p.Sets, "")
	add("identities", p.Identities, "identities")
	add("CIDR identities", p.Blocks, "identity_cidrs")
	add("policy entries", p.Entries, "policies")
	add("port ranges", p.Ports, "policy_ports")
	add("conntrack entries", maps["conntrack"].Entries, "conntrack")
	return rows
}
