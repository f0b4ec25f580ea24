package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// flowQuery has the flags of `beeline flows`.
type flowQuery struct {
	filter agentapi.FlowFilter
	since  time.Duration
	follow bool
}

// flowsLast is the default of --last.
const flowsLast = 100

func newFlowsCommand(e cli.Env) *cobra.Command {
	var q flowQuery
	var cmd *cobra.Command
	cmd = newReadCommand(e, "flows", "Show connections and drops by the names of pods and Services",
		func(c *agentapi.Client, ctx context.Context) (*agentapi.FlowList, error) {
			list, err := c.Flows(ctx, q.request(cmd, time.Now()))
			return list, flagOfFilter(err)
		}, printFlows)
	cmd.Long = `Show the connections and drops of this node: source and destination, the NetworkPolicies that
allowed a connection, or the reason of a drop.

--pod, --from and --to take a pod or Service as NAMESPACE/NAME, a namespace as NAMESPACE/, the
name of a pod, Service or node, an address, or a CIDR.`
	cmd.Example = `  beeline flows --pod shop/cart --verdict dropped
  beeline flows --to shop/db --port 5432 --since 5m
  beeline flows --from 10.1.2.0/24 --follow`
	q.addFlags(cmd)
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.since < 0 {
			return fmt.Errorf("--since: %s is in the future", q.since)
		}
		output := cmd.Flag("output").Value.String()
		if !q.follow {
			return once(cmd, args)
		}
		if output != "text" && output != "json" {
			return fmt.Errorf("--follow supports the output formats text and json, not %q", output)
		}
		client := agentapi.NewClient(cmd.Flag("socket").Value.String())
		return explain(flagOfFilter(followFlows(cmd.Context(), e, client, q.request(cmd, time.Now()), output == "json")))
	}
	return cmd
}

func (q *flowQuery) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.filter.Pod, "pod", "", "show flows from or to this pod, Service, node, address or CIDR")
	f.StringVar(&q.filter.From, "from", "", "show flows from this source")
	f.StringVar(&q.filter.To, "to", "", "show flows to this destination")
	f.StringVar(&q.filter.Verdict, "verdict", "", "show flows with this verdict: "+agentapi.FlowAllowed+", "+agentapi.FlowDropped)
	f.StringVar(&q.filter.Protocol, "protocol", "", "show flows of this protocol: TCP, UDP, SCTP, ICMP, ICMPv6, or a number")
	f.Var((*portFlag)(&q.filter.Port), "port", "show flows to this port")
	f.StringVar(&q.filter.Reason, "reason", "", "show drops with this reason (see beeline drops)")
	f.DurationVar(&q.since, "since", 0, "show flows of this last period, such as 5m")
	f.IntVar(&q.filter.Last, "last", flowsLast, "show at most this many of the newest flows; 0: all in the buffer; all since then with --since")
	f.BoolVarP(&q.follow, "follow", "f", false, "keep printing new flows; with --last or --since, after the ones in the buffer")
}

// portFlag is the value of --port.
type portFlag uint16

func (p *portFlag) Type() string { return "uint16" }

func (p *portFlag) String() string { return strconv.Itoa(int(*p)) }

func (p *portFlag) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%s is not from 1 to 65535", text)
	}
	*p = portFlag(n)
	return nil
}

// flagOfFilter names the flag where the agent names a field of the filter: they have the same names.
func flagOfFilter(err error) error {
	if !agentapi.HasCode(err, agentapi.CodeInvalid) {
		return err
	}
	if field, ok := strings.CutPrefix(err.Error(), agentapi.InFlowFilter); ok {
		return errors.New("--" + field)
	}
	return err
}

// request returns the filter for the agent.
func (q *flowQuery) request(cmd *cobra.Command, now time.Time) agentapi.FlowFilter {
	filter := q.filter
	if q.since > 0 {
		filter.Since = now.Add(-q.since)
	}
	if cmd.Flags().Changed("last") {
		return filter
	}
	switch {
	case q.since > 0:
		filter.Last = 0 // all since then
	case q.follow:
		filter.Last, filter.New = 0, true
	}
	return filter
}

// printFlows prints a line for each flow.
func printFlows(w io.Writer, list *agentapi.FlowList) error {
	defer printLosses(w, list)
	if len(list.Flows) == 0 {
		fmt.Fprintln(w, noFlows(list))
		return nil
	}
	rows := [][]string{{"TIME", "SOURCE", "", "DESTINATION", "PROTOCOL", "EVENT", "PACKETS", "REASON"}}
	for _, f := range list.Flows {
		rows = append(rows, flowRow(f))
	}
	return cli.Table(w, rows)
}

// noFlows explains an empty list.
func noFlows(list *agentapi.FlowList) string {
	switch {
	case list.Mode == "off":
		return "Flows are off on this node (--flows=off)."
	case list.Buffered == 0 && list.Mode == "drops":
		return "No drops since the agent started; connections are not reported on this node (--flows=drops)."
	case list.Buffered == 0 && list.Mode == "policy":
		return "No flows yet: only drops, and connections of pods that NetworkPolicies select, are reported (--flows=policy)."
	case list.Buffered == 0:
		return "No flows yet."
	}
	return fmt.Sprintf("None of the %d flows in the buffer, since %s, matches.", list.Buffered, list.Oldest.UTC().Format(time.RFC3339))
}

// printLosses prints a line for each kind of lost events.
func printLosses(w io.Writer, list *agentapi.FlowList) {
	for _, l := range list.Losses {
		fmt.Fprintln(w, lossLine(&l))
	}
}

func lossLine(l *agentapi.FlowLoss) string {
	return fmt.Sprintf("Lost: %d %s events: %s.", l.Events, l.Event, l.Meaning)
}

// followFlows prints flows as they come, until the command is interrupted.
func followFlows(ctx context.Context, e cli.Env, c *agentapi.Client, filter agentapi.FlowFilter, asJSON bool) error {
	lines := json.NewEncoder(e.Stdout)
	if !asJSON {
		fmt.Fprintln(e.Stderr, "Watching; end with Ctrl-C.")
	}
	err := c.FollowFlows(ctx, filter, func(line agentapi.FlowLine) error {
		if asJSON {
			return lines.Encode(line)
		}
		text := ""
		switch {
		case line.Missed > 0:
			text = fmt.Sprintf("Missed %d events: this command was too slow.", line.Missed)
		case line.Lost != nil:
			text = lossLine(line.Lost)
		case line.Flow != nil:
			text = flowLine(*line.Flow)
		default:
			return nil // of a newer agent
		}
		_, err := fmt.Fprintln(e.Stdout, text)
		return err
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // interrupted: that is how it ends
	}
	return err
}
