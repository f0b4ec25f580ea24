package comparison

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Condition is a change that must not happen: "tcp_rr.ratio<0.98".
type Condition struct {
	text string
	// name and labels are patterns of path.Match.
	name   string
	labels map[string]string
	// ratio chooses Change.Ratio, else Change.Value.
	ratio bool
	// below means that values below the limit fail, else those above.
	below bool
	limit float64
}

// labels are what the braces of a condition may have.
var labels = map[string]func(Key) string{
	"network":   func(k Key) string { return k.Network },
	"build":     func(k Key) string { return k.Build },
	"metric":    func(k Key) string { return k.Metric },
	"path":      func(k Key) string { return string(k.Path) },
	"placement": func(k Key) string { return string(k.Placement) },
	"procs":     func(k Key) string { return strconv.Itoa(k.Procs) },
	"objects":   func(k Key) string { return strconv.Itoa(k.Objects) },
}

// ParseCondition reads NAME[{LABEL=VALUE,…}].ratio<NUMBER, with value in place of ratio, and > in place of <. The name and
// the values are patterns: * stands for any characters.
func ParseCondition(text string) (Condition, error) {
	c, err := parse(text)
	if err != nil {
		return Condition{}, fmt.Errorf("condition %q: %w", text, err)
	}
	return c, nil
}

func parse(text string) (Condition, error) {
	c := Condition{text: text, labels: map[string]string{}}
	at := strings.LastIndexAny(text, "<>")
	if at < 0 {
		return c, errors.New("neither < nor >, as in tcp_rr.ratio<0.98")
	}
	c.below = text[at] == '<'
	var err error
	if c.limit, err = strconv.ParseFloat(strings.TrimSpace(text[at+1:]), 64); err != nil || !(c.limit > 0) || c.limit > 1e9 {
		return c, fmt.Errorf("%q is not a number above 0", strings.TrimSpace(text[at+1:]))
	}
	figure, quantity, ok := cutLast(strings.TrimSpace(text[:at]), ".")
	if !ok || quantity != "ratio" && quantity != "value" {
		return c, errors.New(`the figure does not end in .ratio (of the ratios to node) or .value, as in tcp_rr.ratio<0.98`)
	}
	c.ratio = quantity == "ratio"
	name, rest, braces := strings.Cut(figure, "{")
	if c.name = name; name == "" {
		return c, errors.New("no name of a figure")
	}
	if !braces {
		return c, c.valid()
	}
	if !strings.HasSuffix(rest, "}") {
		return c, errors.New("{ without }")
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
		key, value, ok := strings.Cut(label, "=")
		if key = strings.TrimSpace(key); !ok || labels[key] == nil {
			return c, fmt.Errorf("%q is not LABEL=VALUE with one of the labels %s", label, strings.Join(slices.Sorted(maps.Keys(labels)), ", "))
		}
		if _, twice := c.labels[key]; twice {
			return c, fmt.Errorf("label %s twice", key)
		}
		c.labels[key] = strings.TrimSpace(value)
	}
	return c, c.valid()
}

// cutLast cuts around the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

// valid checks the patterns.
func (c Condition) valid() error {
	for _, pattern := range slices.AppendSeq([]string{c.name}, maps.Values(c.labels)) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// String is the condition as it was given.
func (c Condition) String() string { return c.text }

// about reports whether a condition is about a change. Without a label metric it is about headline figures only.
func (c Condition) about(change Change) bool {
	if !matches(c.name, change.Name) || c.of(change) == nil {
		return false
	}
	if c.labels["metric"] == "" && !change.Headline {
		return false
	}
	for label, pattern := range c.labels {
		if !matches(pattern, labels[label](change.Key)) {
			return false
		}
	}
	return true
}

func matches(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// of is the quantity that the condition is about; nil if the change does not have it.
func (c Condition) of(change Change) *Value {
	if c.ratio {
		return change.Ratio
	}
	return change.Value
}

// outcome decides whether a value is beyond the limit: with its whole interval, or as such if it has none by its nature.
func (c Condition) outcome(v *Value) Outcome {
	low, high := v.Low, v.High
	if v.Once {
		low, high = &v.Median, &v.Median
	}
	switch {
	case low == nil || high == nil:
		return Undecidable
	case c.below && *high < c.limit, !c.below && *low > c.limit:
		return Failed
	}
	return Passed
}
