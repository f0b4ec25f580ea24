package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// dash means that there is no value; 0 never does.
const dash = "–"

// significant renders v with three significant digits and thousands separators: 48.5, 0.875, 12,300.
func significant(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return dash
	}
	decimals := func(v float64) int { return 2 - int(math.Floor(math.Log10(math.Abs(v)))) }
	scale := math.Pow10(decimals(v))
	rounded := math.Round(v*scale) / scale
	// 999.6 rounds to 1000: one digit fewer behind the point.
	return group(strconv.FormatFloat(rounded, 'f', max(decimals(rounded), 0), 64))
}

// group puts commas between the thousands of a decimal number.
func group(s string) string {
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// prefixes are the larger units of a unit, the largest first.
var prefixes = map[string][]struct {
	size float64
	unit string
}{
	"ns":     {{1e3, "µs"}},
	"µs":     {{1e6, "s"}, {1e3, "ms"}},
	"ms":     {{1e3, "s"}},
	"Mbit/s": {{1e3, "Gbit/s"}},
	"/s":     {{1e6, "M/s"}, {1e3, "k/s"}},
	"B":      {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}},
	"bytes":  {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}},
}

func scaled(v float64, unit string) (number, shown string) {
	for _, p := range prefixes[unit] {
		if math.Abs(v) >= p.size {
			return significant(v / p.size), p.unit
		}
	}
	return significant(v), unit
}

// quantity renders v with its unit, scaled if the unit allows it: 72.0 k/s, 48.5 Gbit/s, 1.20 ms.
func quantity(v float64, unit string) string {
	number, shown := scaled(v, unit)
	if shown == "" || strings.HasPrefix(shown, "/") {
		return number + shown
	}
	return number + " " + shown
}

// tickIn renders the ticks of a scale without trailing zeros.
func tickIn(unit string) func(float64) string {
	return func(v float64) string {
		number, shown := scaled(v, unit)
		if strings.Contains(number, ".") {
			number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
		}
		return strings.TrimSpace(number + " " + shown)
	}
}

// positive renders v with its unit; 0 is no value.
func positive(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	return quantity(v, unit)
}

// megabytes renders a number of bytes as MB of 10⁶ bytes; 0 is no value.
func megabytes(bytes uint64) string { return positive(float64(bytes)/1e6, "MB") }

// count renders a number of things.
func count[T int | uint64](n T) string { return group(fmt.Sprint(n)) }

// product renders two numbers of objects: "10,000 × 10".
func product(a, b int) string { return count(a) + " × " + count(b) }

// plural renders "1 round", "2 rounds".
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ss"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ratio renders a ratio with three decimals: the interval 1.001–1.004 excludes 1 and must not look as if it included it.
func ratio(v *float64) string {
	if v == nil {
		return dash
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// interval renders the two bounds, or a dash if one is missing.
func interval(low, high *float64) string {
	if low == nil || high == nil {
		return dash
	}
	return ratio(low) + "–" + ratio(high)
}

// percent renders a share (0…1).
func percent(share float64) string { return fmt.Sprintf("%.1f %%", share*100) }

// listed joins the parts that are not empty: "2 CPUs · Linux 6.18".
func listed(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, " · ")
}
