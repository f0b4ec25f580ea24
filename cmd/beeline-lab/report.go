package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
)

func newReportCommand(e cli.Env) *cobra.Command {
	var html, markdown, summary bool
	var g gate
	c := &cobra.Command{
		Use:   "report DIR [DIR]",
		Short: "Print the results of a bench, or compare two",
		Long: `Print DIR/results.json as tables and write DIR/report.html.

With two directories, compare the second (B) with the first (A), figure by figure. The comparison goes to the
terminal, or with --html to compare.html in the second directory.

--fail-if says which change must not happen: NAME.ratio<NUMBER, or .value, or >. NAME is a workload, or a cost that
--json lists, such as cni_add. A ratio is B ÷ A of the ratios to node, which also hold between machines; a value is B ÷
A of the figures themselves. The command fails if the whole interval is beyond the number, or if the runs have too few
rounds for an interval. With one directory, the conditions are about the builds of Beeline in that run. Braces
choose some figures, as in tcp_rr{network=beeline,path=same-node,metric=rtt_p99}.ratio>1.1: the labels are build,
metric, network, objects, path, placement and procs, and * stands for any characters.

Exit codes: 1 a condition holds for a figure, or another error.`,
		Example: `  beeline-lab report results/2026-11-20          print tables and write report.html
  beeline-lab report results/a results/b         print what changed from a to b
  beeline-lab report --html results/a results/b  write it to results/b/compare.html
  beeline-lab report --markdown results/a        print all tables as Markdown
  beeline-lab report --summary results/a         print the overview as Markdown
  beeline-lab report results/a results/b --fail-if 'tcp_rr.ratio<0.98' --fail-if 'cni_add.value>1.2' --junit bench.xml`,
		Args: cli.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(_ *cobra.Command, args []string) error {
			if summary && len(args) > 1 {
				return errors.New("--summary takes one DIR: a comparison has no overview")
			}
			if err := g.parse(); err != nil {
				return err
			}
			for i, dir := range args { // its results.json means the directory
				if filepath.Base(dir) == result.FileName {
					args[i] = filepath.Dir(dir)
				}
			}
			runs := make([]*result.Run, len(args))
			for i, dir := range args {
				var err error
				if runs[i], err = report.Load(dir); err != nil {
					return err
				}
			}
			document, path := report.New(runs[0]), filepath.Join(args[0], report.FileName)
			if len(runs) == 2 {
				document, path = report.Compare(runs[0], runs[1]), filepath.Join(args[1], report.CompareFileName)
			}
			switch {
			case markdown:
				if err := document.Markdown(e.Stdout); err != nil {
					return err
				}
			case summary:
				if err := document.Summary(e.Stdout); err != nil {
					return err
				}
			default:
				if !html {
					if err := document.Text(e.Stdout); err != nil {
						return err
					}
				}
				if html || len(runs) == 1 {
					if err := document.WriteFile(path); err != nil {
						return err
					}
					fmt.Fprintf(e.Stderr, "Report: %s\n", path)
				}
			}
			return g.check(e, runs, document)
		},
	}
	c.Flags().BoolVar(&html, "html", false, "only write report.html, or compare.html for two directories")
	c.Flags().BoolVar(&markdown, "markdown", false, "only print the tables, as Markdown")
	c.Flags().BoolVar(&summary, "summary", false, "only print the overview, as Markdown")
	c.MarkFlagsMutuallyExclusive("html", "markdown", "summary")
	g.register(c.Flags())
	return c
}
