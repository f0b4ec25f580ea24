package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// flowQuestion holds the flags of `beeline flows`.
type flowQuestion struct {
	filter agentapi.FlowFilter
	since  time.Duration
	follow bool
}

// flowsLast is how many flows are printed unless something else is said.
const flowsLast = 100

func newFlowsCommand(e cli.Env) *cobra.Command {
	var q flowQuestion
	cmd := newReadCommand(e, "flows", "Show the connections and drops that this node has seen, by name",
		func(cmd *cobra.Command, c *agentapi.Client) (*agentapi.FlowList, error) {
			return c.Flows(cmd.Context(), q.asked(cmd, time.Now()))
		}, printFlows)
	cmd.Long = `Shows the connections and drops that this node has seen: who with whom, which NetworkPolicies have allowed it, or why it was dropped.

An end is a pod or a Service as namespace/name, a namespace as namespace/, the name of a pod, Service or node alone, an address, or a prefix.`
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
		if !q.follow || output != "text" && output != "json" {
			return once(cmd, args)
		}
		client := agentapi.NewClient(cmd.Flag("socket").Value.String())
		return explain(followFlows(cmd.Context(), e, client, q.asked(cmd, time.Now()), output == "json"))
	}
	return cmd
}

func (q *flowQuestion) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.filter.Pod, "pod", "", "only what this end has to do with, on either side")
	f.StringVar(&q.filter.From, "from", "", "only what this end has begun or sent")
	f.StringVar(&q.filter.To, "to", "", "only what goes to this end")
	f.StringVar(&q.filter.Verdict, "verdict", "", "only what was "+agentapi.FlowAllowed+", or "+agentapi.FlowDropped)
	f.StringVar(&q.filter.Protocol, "protocol", "", "only this protocol: TCP, UDP, SCTP, ICMP, ICMPv6 or a number")
	f.Uint16Var(&q.filter.Port, "port", 0, "only what goes to this port")
	f.StringVar(&q.filter.Reason, "reason", "", "only drops of this reason, as 'beeline drops' names it")
	f.DurationVar(&q.since, "since", 0, "only what is not older than this, as in 5m")
	f.IntVar(&q.filter.Last, "last", flowsLast, "how many at most, the newest; 0: all that are kept, as with --since")
	f.BoolVarP(&q.follow, "follow", "f", false, "go on with what comes, until Ctrl-C or the end of the agent; with --last or --since, after what there is already")
}

// asked gives the filter for the agent.
func (q *flowQuestion) asked(cmd *cobra.Command, now time.Time) agentapi.FlowFilter {
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
	rows := [][]string{{"TIME", "SOURCE", "", "DESTINATION", "PROTOCOL", "EVENT", "PACKETS", "WHY"}}
	for _, f := range list.Flows {
		rows = append(rows, flowRow(f))
	}
	return cli.Table(w, rows)
}

// noFlows says why there is nothing to print.
func noFlows(list *agentapi.FlowList) string {
	switch {
	case list.Telling == "off":
		return "Flows are off on this node (--flows=off)."
	case list.Kept == 0 && list.Telling == "drops":
		return "No packet has been dropped since the agent started; of connections flows tell nothing here (--flows=drops)."
	case list.Kept == 0 && list.Telling == "policy":
		return "Nothing yet: flows tell of drops, and of connections of pods that NetworkPolicies select (--flows=policy)."
	case list.Kept == 0:
		return "Nothing yet."
	}
	return fmt.Sprintf("None of the %d events that are kept, since %s, is asked for.", list.Kept, list.Oldest.UTC().Format(time.RFC3339))
}

// printLosses says what is missing.
func printLosses(w io.Writer, list *agentapi.FlowList) {
	for _, l := range list.Losses {
		fmt.Fprintln(w, lossLine(&l))
	}
}

func lossLine(l *agentapi.FlowLoss) string {
	return fmt.Sprintf("Not told: %d events (%s) because %s.", l.Events, l.Event, l.Meaning)
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
			text = fmt.Sprintf("%d events went by unseen: this command was too slow.", line.Missed)
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
