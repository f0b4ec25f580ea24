package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// The exit codes of `policy explain`; it is asked by scripts.
const (
	exitDenied cli.ExitCode = 1
	exitError  cli.ExitCode = 2
)

func newPolicyCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Ask about NetworkPolicies"}
	cmd.AddCommand(newPolicyExplainCommand(e))
	return cmd
}

func newPolicyExplainCommand(e cli.Env) *cobra.Command {
	var allowed bool
	protocol := agentapi.Protocols[0]
	cmd := newReadArgsCommand(e, "explain FROM TO[:PORT]", "Say whether NetworkPolicies allow a connection, by which rule, or what is missing",
		cli.Arguments(cobra.ExactArgs(2)),
		func(cmd *cobra.Command, args []string, c *agentapi.Client) (*agentapi.PolicyAnswer, error) {
			q := agentapi.PolicyQuestion{From: unbracketed(args[0]), Protocol: strings.ToUpper(protocol)}
			q.To, q.Port = splitPort(args[1])
			answer, err := c.ExplainPolicy(cmd.Context(), q)
			if err == nil {
				allowed = answer.Allowed
			}
			return answer, err
		},
		printAnswer)
	cmd.Long = `Say whether NetworkPolicies allow a connection, by which rule, or what is missing.

FROM is a pod as NAMESPACE/NAME, an address, or "node" for the node of the other end.
TO is the same with a port, by number or name: shop/web:80, 10.1.0.7:443, [fd00::7]:443.
NAMESPACE/NAME may also be a Service, if no pod has that name: each of its backends is asked about. So it is with an address of a
Service, and with a node's address and a port that a Service has on all nodes. Each end's policies are asked about what they see: behind
another node's port that is the node, for the sender, and for a backend that is not on it. A backend that gets none of these connections,
since it is not ready or a traffic policy keeps them elsewhere, decides nothing.

No packet is sent: the agent of this node answers by the pods, namespaces and policies that it knows.
The exit code is 0 if it is allowed, 1 if not, and 2 if there is no answer.`
	cmd.Example = `  beeline policy explain shop/client shop/web:80
  beeline policy explain 203.0.113.9 shop/web:443
  beeline policy explain shop/web shop/dns:53 --protocol UDP`
	cmd.Flags().StringVar(&protocol, "protocol", protocol, strings.Join(append(agentapi.Protocols, agentapi.ProtocolICMP), ", "))
	refuse := func(err error) error {
		fmt.Fprintf(e.Stderr, "beeline: %v\n", err)
		return exitError
	}
	check, ask := cmd.Args, cmd.RunE
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return refuse(err) })
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return refuse(err)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ask(cmd, args); err != nil {
			return refuse(err)
		}
		if !allowed {
			return exitDenied
		}
		return nil
	}
	return cmd
}

// splitPort takes the port from the end of a destination: "shop/web:80", "10.1.0.7:443", "[fd00::7]:443", "node:80". An IPv6 address
// without brackets has none.
func splitPort(text string) (to, port string) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 || strings.Count(text, ":") > 1 && !strings.HasSuffix(text[:at], "]") {
		return unbracketed(text), ""
	}
	return unbracketed(text[:at]), text[at+1:]
}

func unbracketed(address string) string {
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

func printAnswer(w io.Writer, a *agentapi.PolicyAnswer) error {
	if len(a.Ways) == 0 {
		return errors.New("the agent's answer says nothing")
	}
	for i, way := range a.Ways {
		if i > 0 {
			fmt.Fprintln(w)
		}
		verdict := "allowed"
		if !way.Allowed {
			verdict = "NOT ALLOWED"
		}
		to := way.To
		if way.Service != "" {
			to += ", a backend of Service " + way.Service
		}
		if way.Unused {
			to += " that gets none of these connections as things are"
		}
		fmt.Fprintf(w, "%s to %s: %s\n", way.From, to, verdict)
		sentTo, seenAs := "", ""
		if way.SentTo != "" {
			sentTo = " to " + way.SentTo
		}
		if way.SeenAs != "" {
			seenAs = " from " + way.SeenAs
		}
		printJudgement(w, agentapi.DirectionEgress, sentTo, way.Egress)
		printJudgement(w, agentapi.DirectionIngress, seenAs, way.Ingress)
	}
	return nil
}

// printJudgement says what one end's policies say, and who says it; other is what they see of the other end, if that is not its own.
func printJudgement(w io.Writer, direction, other string, j agentapi.PolicyJudgement) {
	verdict := "allowed"
	if !j.Allowed {
		verdict = "not allowed"
	}
	of := ""
	if j.Pod != "" {
		of = " of " + j.Pod + other
	}
	fmt.Fprintf(w, "  %s%s: %s: %s\n", direction, of, verdict, j.Reason)
	for _, rule := range j.Rules {
		fmt.Fprintf(w, "    %s\n", rule)
	}
	if j.Allowed || len(j.Policies) == 0 {
		return
	}
	fmt.Fprintf(w, "    policies that select it: %s\n", strings.Join(j.Policies, ", "))
	for _, near := range j.Near {
		fmt.Fprintf(w, "    %s\n", near)
	}
}
