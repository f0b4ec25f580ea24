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
	cmd := newReadArgsCommand(e, "policies [NAME]", "List the NetworkPolicies of the cluster and what has become of them on this node",
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
	cmd.Flags().StringVarP(&which.Namespace, "namespace", "n", "", "only those of this namespace")
	return cmd
}

func printPolicies(w io.Writer, all []agentapi.NetworkPolicy) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "No such NetworkPolicies.")
		return nil
	}
	rows := [][]string{{"POLICY", "DIRECTIONS", "RULES", "PODS HERE", "STATE", "SINCE"}}
	for _, p := range all {
		state := p.State
		if p.Reason != "" {
			state += " because " + p.Reason
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

// podNames names some pods, without the namespace, which is that of the policy.
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

// policyRows tells what this node has to do with NetworkPolicies.
func policyRows(s *agentapi.Status) [][]string {
	p := s.Policy
	rows := [][]string{{"WHAT", "NOW", "ROOM FOR"}}
	if !p.Enforced {
		return rows
	}
	maps := map[string]agentapi.Map{}
	for _, m := range s.Maps {
		maps[m.Name] = m
	}
	add := func(what string, now any, in string) {
		room := "-"
		if m, ok := maps[in]; ok {
			room = fmt.Sprint(m.MaxEntries)
		}
		rows = append(rows, []string{what, fmt.Sprint(now), room})
	}
	policies := fmt.Sprint(p.Policies)
	if !p.Known {
		policies = "not known yet"
	}
	add("policies", policies, "")
	add("policies that are closed", p.Closed, "")
	add("policies that are not in force yet", p.Pending, "")
	add("pods here that policies select", p.Pods, "policy_pods")
	add("pods that are closed", p.ClosedPods, "")
	add("sets of rules", p.Sets, "")
	add("single addresses", p.Identities, "identities")
	add("prefixes", p.Blocks, "identity_cidrs")
	add("who may be asked by whom", p.Entries, "policies")
	add("ranges of ports", p.Ports, "policy_ports")
	add("sessions", maps["conntrack"].Entries, "conntrack")
	return rows
}
