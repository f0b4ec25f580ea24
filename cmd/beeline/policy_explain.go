package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Exit codes of `policy explain`, for scripts.
const (
	exitDenied cli.ExitCode = 1
	exitError  cli.ExitCode = 2
)

func newPolicyCommand(e cli.Env) *cobra.Command {
	return cli.Group("policy", "Explain NetworkPolicies", newPolicyExplainCommand(e))
}

func newPolicyExplainCommand(e cli.Env) *cobra.Command {
	var allowed bool
	protocol := agentapi.Protocols[0]
	var cmd *cobra.Command
	cmd = newReadCommand(e, "explain FROM TO[:PORT]", "Explain whether NetworkPolicies allow a connection, and by which rule",
		func(c *agentapi.Client, ctx context.Context) (*agentapi.PolicyAnswer, error) {
			args := cmd.Flags().Args()
			q := agentapi.PolicyQuestion{From: unbracketed(args[0]), Protocol: strings.ToUpper(protocol)}
			q.To, q.Port = splitPort(args[1])
			answer, err := c.ExplainPolicy(ctx, q)
			if err == nil {
				allowed = answer.Allowed
			}
			return answer, err
		},
		printAnswer)
	cmd.Long = `Explain whether NetworkPolicies allow a connection: by which rule, or which rules come close.

FROM is a pod as NAMESPACE/NAME, an address, or "node" for the node of the other end.
TO is the same with a port number or name: shop/web:80, 10.1.0.7:443, [fd00::7]:443.
TO may also be a Service (NAMESPACE/NAME, if no pod has that name), one of its addresses, or a
node address with a NodePort: the command evaluates the connection to each backend.

The policies of each end see the addresses on the packet. Through the NodePort of another node,
the sender's policies see that node, and so do those of a backend on a third node. Backends that
get no such connection, because they are not ready or by a traffic policy, do not count.

No packet is sent: the agent of this node evaluates the policies that it has.
Exit codes: 0 allowed, 1 denied, 2 error.`
	cmd.Example = `  beeline policy explain shop/client shop/web:80
  beeline policy explain 203.0.113.9 shop/web:443
  beeline policy explain shop/web shop/dns:53 --protocol UDP`
	cmd.Flags().StringVar(&protocol, "protocol", protocol, strings.Join(append(agentapi.Protocols, agentapi.ProtocolICMP), ", "))
	fail := func(err error) error {
		fmt.Fprintf(e.Stderr, "beeline: %v\n", err)
		return exitError
	}
	check, ask := cli.Arguments(cobra.ExactArgs(2)), cmd.RunE
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(cli.FlagError(err)) })
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fail(err)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ask(cmd, args); err != nil {
			return fail(err)
		}
		if !allowed {
			return exitDenied
		}
		return nil
	}
	return cmd
}

// splitPort splits a destination into host and port: "shop/web:80", "10.1.0.7:443", "[fd00::7]:443", "node:80". An IPv6
// address without brackets has no port.
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
	if len(a.Paths) == 0 {
		return errors.New("the agent returned no result")
	}
	for i, path := range a.Paths {
		if i > 0 {
			fmt.Fprintln(w)
		}
		verdict := "allowed"
		if !path.Allowed {
			verdict = "NOT ALLOWED"
		}
		to := path.To
		if path.Service != "" {
			to += ", a backend of Service " + path.Service
		}
		if path.Unused {
			to += " (gets none of these connections now)"
		}
		fmt.Fprintf(w, "%s to %s: %s\n", path.From, to, verdict)
		sentTo, seenAs := "", ""
		if path.SentTo != "" {
			sentTo = " to " + path.SentTo
		}
		if path.SeenAs != "" {
			seenAs = " from " + path.SeenAs
		}
		printVerdict(w, agentapi.DirectionEgress, sentTo, path.Egress)
		printVerdict(w, agentapi.DirectionIngress, seenAs, path.Ingress)
	}
	return nil
}

// printVerdict prints the verdict of one end's policies. other is the other end as they see it, if NAT changes it.
func printVerdict(w io.Writer, direction, other string, j agentapi.PolicyDecision) {
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
