package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/lab/comparison"
	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
)

// gate is what `report` gives to continuous integration: conditions, and the files that it reads.
type gate struct {
	failIf                        []string
	json, junit, metrics, comment string
	conditions                    []comparison.Condition
}

func (g *gate) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&g.failIf, "fail-if", nil, "`condition` that must not hold, see above; may be given several times")
	flags.StringVar(&g.json, "json", "", "write the comparison and what became of the conditions to this `file`, as JSON")
	flags.StringVar(&g.junit, "junit", "", "write what became of the conditions to this `file`, as JUnit XML")
	flags.StringVar(&g.metrics, "openmetrics", "", "write the figures and changes to this `file`, as OpenMetrics text")
	flags.StringVar(&g.comment, "comment", "", "write a comment for a pull request to this `file`, as Markdown")
}

// parse reads the conditions.
func (g *gate) parse() error {
	for _, text := range g.failIf {
		c, err := comparison.ParseCondition(text)
		if err != nil {
			return fmt.Errorf("--fail-if: %w", err)
		}
		g.conditions = append(g.conditions, c)
	}
	if g.junit != "" && len(g.conditions) == 0 {
		return errors.New("--junit needs --fail-if")
	}
	return nil
}

// check writes the files and fails if a condition holds. With one run it compares the builds in it.
func (g *gate) check(e cli.Env, runs []*result.Run, document *report.Document) error {
	last := runs[len(runs)-1]
	changes := comparison.Builds(last)
	if len(runs) == 2 {
		changes = comparison.Of(runs[0], runs[1])
	}
	checks, err := comparison.Apply(changes, g.conditions)
	if err != nil {
		if len(changes) == 0 {
			err = fmt.Errorf("%w: nothing is compared; give two directories, or one of a run with two builds", err)
		}
		return fmt.Errorf("--fail-if: %w", err)
	}
	for _, out := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{g.json, func(w io.Writer) error {
			return cli.JSON(w, struct {
				Changes []comparison.Change `json:"changes"`
				Checks  []comparison.Check  `json:"checks"`
			}{changes, checks})
		}},
		{g.junit, func(w io.Writer) error { return comparison.WriteJUnit(w, checks) }},
		{g.metrics, func(w io.Writer) error { return comparison.WriteOpenMetrics(w, comparison.Figures(last), changes) }},
		{g.comment, func(w io.Writer) error { return comparison.WriteComment(w, changes, checks, document.Markdown) }},
	} {
		if out.path == "" {
			continue
		}
		var text bytes.Buffer
		if err := out.write(&text); err != nil {
			return fmt.Errorf("write %s: %w", out.path, err)
		}
		if err := file.Replace(out.path, text.Bytes()); err != nil {
			return err
		}
	}
	failures := comparison.Failures(checks)
	for _, j := range failures {
		fmt.Fprintln(e.Stderr, j)
	}
	if len(failures) > 0 {
		return cli.ExitCode(1)
	}
	if len(checks) > 0 {
		fmt.Fprintf(e.Stderr, "All checks pass: %d figures.\n", len(checks))
	}
	return nil
}
