package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// watchInterval is the time between two polls of `beeline drops --watch`.
const watchInterval = time.Second

func newDropsCommand(e cli.Env) *cobra.Command {
	var watch bool
	cmd := newReadCommand(e, "drops", "Count dropped packets by reason",
		(*agentapi.Client).Drops, printDrops)
	once := cmd.RunE
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep printing a line for each counter that increases")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return once(cmd, args)
		}
		if cmd.Flag("output").Value.String() != "text" {
			return fmt.Errorf("--watch supports text output only")
		}
		socket := cmd.Flag("socket").Value.String()
		return explain(watchDrops(cmd.Context(), agentapi.NewClient(socket), e.Stdout))
	}
	return cmd
}

func printDrops(w io.Writer, all []agentapi.Drop) error {
	rows := [][]string{{"PACKETS", "BYTES", "REASON", "PROGRAM", "DESCRIPTION"}}
	for _, d := range all {
		if d.Packets > 0 {
			rows = append(rows, []string{fmt.Sprint(d.Packets), fmt.Sprint(d.Bytes), d.Reason, d.Program, d.Meaning})
		}
	}
	if len(rows) == 1 {
		fmt.Fprintln(w, "No dropped packets.")
		return nil
	}
	return cli.Table(w, rows)
}

// watchDrops prints every increase until the command is interrupted.
func watchDrops(ctx context.Context, c *agentapi.Client, w io.Writer) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var last map[string]uint64
	for {
		all, err := c.Drops(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		counts := map[string]uint64{}
		for _, d := range all {
			key := d.Program + " " + d.Reason
			counts[key] = d.Packets
			if last != nil && d.Packets > last[key] {
				fmt.Fprintln(w, dropLine(time.Now(), d, d.Packets-last[key]))
			}
		}
		if last == nil {
			fmt.Fprintln(w, "Watching; end with Ctrl-C.")
		}
		last = counts
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// dropLine prints an increase of a counter, with the time in UTC as in flows.
func dropLine(now time.Time, d agentapi.Drop, more uint64) string {
	return fmt.Sprintf("%s  +%d  %s in %s: %s", now.UTC().Format(time.TimeOnly), more, d.Reason, d.Program, d.Meaning)
}
