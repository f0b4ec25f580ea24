package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/stats"
)

// dash means that there is no value; 0 never does.
const dash = "–"

// significant renders v with three significant digits and thousands separators: 48.5, 0.875, 12,300.
func significant(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		if v == 0 {
			return "0"
		}
		return dash
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	rounded := math.Round(v*math.Pow(10, float64(digits))) / math.Pow(10, float64(digits))
	// 999.6 rounds to 1000: one digit fewer behind the point.
	digits = 2 - int(math.Floor(math.Log10(math.Abs(rounded))))
	return group(strconv.FormatFloat(rounded, 'f', max(digits, 0), 64))
}

// group puts commas between the thousands of a decimal number.
func group(s string) string {
	whole, fraction, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

// quantity renders v with its unit, scaled if the unit allows it: 72.0 k/s, 48.5 Gbit/s, 1.20 ms.
func quantity(v float64, unit string) string {
	number, shown := scaled(v, unit)
	if shown == "" {
		return number
	}
	if strings.HasPrefix(shown, "/") {
		return number + shown
	}
	return number + " " + shown
}

// prefixes are the larger units of a unit, the largest first.
var prefixes = map[string][]struct {
	size float64
	unit string
}{
	"µs":     {{1e6, "s"}, {1e3, "ms"}},
	"ms":     {{1e3, "s"}},
	"Mbit/s": {{1e3, "Gbit/s"}},
	"/s":     {{1e6, "M/s"}, {1e3, "k/s"}},
	"B":      {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}},
}

func scaled(v float64, unit string) (number, shown string) {
	switch unit {
	case "us":
		unit = "µs"
	case "bytes":
		unit = "B"
	}
	for _, p := range prefixes[unit] {
		if math.Abs(v) >= p.size {
			return significant(v / p.size), p.unit
		}
	}
	return significant(v), unit
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
func percent(share float64) string {
	if share == 0 {
		return "0 %"
	}
	if math.Abs(share) < 0.0005 {
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", share*100)
}

func duration(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < 0:
		return dash
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// plural renders "1 round", "2 rounds".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ss") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// count renders a number of things.
func count[T int | uint64](n T) string { return group(fmt.Sprint(n)) }

// nanos renders nanoseconds, as microseconds from 1,000 on.
func nanos(ns float64) string {
	if ns >= 1000 {
		return significant(ns/1000) + " µs"
	}
	return significant(ns) + " ns"
}

// positive renders v with its unit; 0 is no value.
func positive(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	if unit == "" && v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return quantity(v, unit)
}

// megabytes renders a number of bytes as MB of 10⁶ bytes; 0 is no value.
func megabytes(bytes uint64) string { return positive(float64(bytes)/1e6, "MB") }

// quantile renders the quantile q of times in milliseconds; without any there is no value.
func quantile(ms []float64, q float64) string {
	if len(ms) == 0 {
		return ""
	}
	return quantity(stats.Quantile(ms, q), "ms")
}
