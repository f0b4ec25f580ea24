package comparison

import (
	"fmt"
	"io"
	"strings"
)

// WriteComment writes a comment for a pull request in Markdown: the verdict, what failed, and which headline figures have
// decidedly changed. The tables of all figures follow, folded, if details writes them.
func WriteComment(w io.Writer, changes []Change, checks []Check, details func(io.Writer) error) error {
	var b strings.Builder
	failures := Failures(checks)
	switch {
	case len(failures) > 0:
		fmt.Fprintf(&b, "### Bench: %s of %d\n\n", plural(len(failures), "check fails", "checks fail"), len(checks))
		b.WriteString("| figure | condition | B ÷ A | |\n|---|---|---:|---|\n")
		for _, j := range failures {
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", cell(j.Change.String()), j.Condition, j.Value, j.reason())
		}
	case len(checks) > 0:
		fmt.Fprintf(&b, "### Bench: %s\n", plural(len(checks), "check passes", "checks pass"))
	default:
		b.WriteString("### Bench\n")
	}
	better, worse, undecided := decided(changes)
	for _, group := range []struct {
		title string
		list  []string
	}{{"Worse", worse}, {"Better", better}} {
		if len(group.list) > 0 {
			fmt.Fprintf(&b, "\n**%s**\n\n%s\n", group.title, strings.Join(group.list, "\n"))
		}
	}
	fmt.Fprintf(&b, "\nNo difference is decided in %s.\n", plural(undecided, "other figure", "other figures"))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if details == nil {
		return nil
	}
	if _, err := io.WriteString(w, "\n<details><summary>All figures</summary>\n\n"); err != nil {
		return err
	}
	if err := details(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n</details>\n")
	return err
}

// decided sorts headline figures by what became of them. The ratio to node counts where there is one, else the value.
func decided(changes []Change) (better, worse []string, undecided int) {
	for _, c := range changes {
		if !c.Headline {
			continue
		}
		v := c.Ratio
		if v == nil {
			v = c.Value
		}
		if !v.Decided() || c.Better == "" {
			undecided++
			continue
		}
		line := fmt.Sprintf("* %s: %s", c.Key, v)
		if (*v.Low > 1) == (c.Better == "higher") {
			better = append(better, line)
		} else {
			worse = append(worse, line)
		}
	}
	return better, worse, undecided
}

// cell escapes what would end a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
