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
	c := &cobra.Command{
		Use:   "report DIR [DIR]",
		Short: "Print the results of a bench, or compare two",
		Long: `Print DIR/results.json as tables and write DIR/report.html.

With two directories, compare the second with the first, figure by figure. The comparison goes to the terminal, or
with --html to compare.html in the second directory.`,
		Example: `  beeline-lab report results/2026-11-20          print tables and write report.html
  beeline-lab report results/a results/b         print what changed from a to b
  beeline-lab report --html results/a results/b  write it to results/b/compare.html
  beeline-lab report --markdown results/a        print all tables as Markdown
  beeline-lab report --summary results/a         print the overview as Markdown`,
		Args: cli.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(_ *cobra.Command, args []string) error {
			if summary && len(args) > 1 {
				return errors.New("--summary takes one DIR: a comparison has no overview")
			}
			for i, dir := range args { // its results.json means the directory
				if filepath.Base(dir) == result.FileName {
					args[i] = filepath.Dir(dir)
				}
			}
			first, err := report.Load(args[0])
			if err != nil {
				return err
			}
			document, path := report.New(first), filepath.Join(args[0], report.FileName)
			if len(args) == 2 {
				second, err := report.Load(args[1])
				if err != nil {
					return err
				}
				document, path = report.Compare(first, second), filepath.Join(args[1], report.CompareFileName)
			}
			switch {
			case markdown:
				return document.Markdown(e.Stdout)
			case summary:
				return document.Summary(e.Stdout)
			}
			if !html {
				if err := document.Text(e.Stdout); err != nil || len(args) == 2 {
					return err
				}
			}
			if err := document.WriteFile(path); err != nil {
				return err
			}
			fmt.Fprintf(e.Stderr, "Report: %s\n", path)
			return nil
		},
	}
	c.Flags().BoolVar(&html, "html", false, "only write report.html, or compare.html for two directories")
	c.Flags().BoolVar(&markdown, "markdown", false, "only print the tables, as Markdown")
	c.Flags().BoolVar(&summary, "summary", false, "only print the overview, as Markdown")
	c.MarkFlagsMutuallyExclusive("html", "markdown", "summary")
	return c
}
