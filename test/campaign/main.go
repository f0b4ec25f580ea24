// Command campaign runs the random tests for hours with seeds that CI does not use, and prints the seed of each failure.
//
//	go run ./test/campaign [-hours 3] [-seed 1] [-only oracle] [-log bin/campaign]
//
// CI runs the same tests with fixed seeds. The campaign runs the parts of parts.go in turns until the time is over. It prints one line per
// run, and for a failed run the command that repeats it and the file with its output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/test/program"
)

// errFailed means that a run failed.
var errFailed = errors.New("runs failed")

func main() {
	program.Main("campaign", func(ctx context.Context, args []string) error { return run(ctx, args, os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	hours := flags.Float64("hours", 3, "how long the campaign runs, in hours")
	seed := flags.Uint64("seed", 0, "`number` from which the seeds of all runs are derived (default: random)")
	only := flags.String("only", "", "run only the parts whose names match this `pattern`")
	logs := flags.String("log", "bin/campaign", "`directory` for the output of failed runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := selectParts(parts, *only)
	if err != nil {
		return err
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if err := os.MkdirAll(*logs, 0o755); err != nil {
		return fmt.Errorf("make directory for logs: %w", err)
	}
	fmt.Fprintf(out, "campaign: %d parts, %.3g hours, seed %d\n", len(chosen), *hours, *seed)
	c := campaign{
		out: out, logs: *logs, random: rand.New(rand.NewPCG(*seed, 0)),
		until: time.Now().Add(time.Duration(*hours * float64(time.Hour))), execute: execute,
	}
	return c.run(ctx, chosen)
}

// campaign is a running campaign.
type campaign struct {
	out     io.Writer
	logs    string
	random  *rand.Rand
	until   time.Time
	execute func(context.Context, command) ([]byte, error)

	runs   int
	failed []string
}

// run runs the parts in rounds of random order until the time is over. It does not interrupt a part.
func (c *campaign) run(ctx context.Context, chosen []part) error {
	for time.Now().Before(c.until) && ctx.Err() == nil {
		order := slices.Clone(chosen)
		c.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, p := range order {
			if !time.Now().Before(c.until) || ctx.Err() != nil {
				break
			}
			if err := c.one(ctx, p); err != nil {
				return err
			}
		}
	}
	for _, f := range c.failed {
		fmt.Fprintf(c.out, "failed: %s\n", f)
	}
	fmt.Fprintf(c.out, "%d passed, %d failed\n", c.runs-len(c.failed), len(c.failed))
	if len(c.failed) > 0 {
		return errFailed
	}
	return nil
}

// one runs a part once. It returns an error if it cannot keep the output of a failed run.
func (c *campaign) one(ctx context.Context, p part) error {
	cmd := p.command(c.random.Uint64())
	started := time.Now()
	output, err := c.execute(ctx, cmd)
	if ctx.Err() != nil {
		return nil // interrupted: no result
	}
	c.runs++
	took := time.Since(started).Round(time.Second)
	if err == nil || p.fuzz > 0 && onlyOutOfTime(output) {
		fmt.Fprintf(c.out, "%s  ok    %-12s seed %-20d %v\n", time.Now().Format(time.TimeOnly), p.name, cmd.seed, took)
		return nil
	}
	log := fmt.Sprintf("%s/%s-%d.log", c.logs, p.name, cmd.seed)
	fmt.Fprintf(c.out, "%s  FAIL  %-12s seed %-20d %v: %v\n  repeat: %s\n  output: %s\n",
		time.Now().Format(time.TimeOnly), p.name, cmd.seed, took, err, cmd, log)
	c.failed = append(c.failed, fmt.Sprintf("%s, seed %d: %s", p.name, cmd.seed, cmd))
	if err := os.WriteFile(log, output, 0o644); err != nil {
		return fmt.Errorf("keep output of %s: %w", p.name, err)
	}
	return nil
}
