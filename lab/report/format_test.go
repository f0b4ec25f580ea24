package report

import "testing"

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{72013, "/s", "72.0 k/s"},
		{1_106_000, "/s", "1.11 M/s"},
		{999.6, "/s", "1,000/s"},
		{12.345, "/s", "12.3/s"},
		{48.49, "Gbit/s", "48.5 Gbit/s"},
		{9834, "Mbit/s", "9.83 Gbit/s"},
		{13.94, "µs", "13.9 µs"},
		{1394, "µs", "1.39 ms"},
		{2_500_000, "µs", "2.50 s"},
		{410, "ns", "410 ns"},
		{2250, "ns", "2.25 µs"},
		{0.0123, "ms", "0.0123 ms"},
		{1234, "ms", "1.23 s"},
		{31 << 20, "B", "31.0 MiB"},
		{2000, "bytes", "1.95 KiB"},
		{0.5, "%", "0.500 %"},
		{0, "/s", "0/s"},
		{123456, "segments", "123,000 segments"},
		{-0.456, "", "-0.456"},
	} {
		if got := quantity(c.v, c.unit); got != c.want {
			t.Errorf("quantity(%v, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

// An interval that excludes 1 must not look as if it included it.
func TestIntervalKeepsItsDistanceFromOne(t *testing.T) {
	low, high := 1.0012, 1.0044
	if got := interval(&low, &high); got != "1.001–1.004" {
		t.Errorf("got %s", got)
	}
	if got := interval(nil, &high); got != dash {
		t.Errorf("half an interval: %s", got)
	}
}
