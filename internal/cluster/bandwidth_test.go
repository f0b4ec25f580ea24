package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// Quantities of Kubernetes, in bit/s; what has no meaning is an error that names the annotation.
func TestBandwidthOf(t *testing.T) {
	invalid := &Bandwidth{Invalid: true}
	for _, test := range []struct {
		egress, ingress string
		want            *Bandwidth
		says            string
	}{
		{"", "", nil, ""},
		{"10M", "", &Bandwidth{Egress: 10e6}, ""},
		{"1Gi", "1k", &Bandwidth{Egress: 1 << 30, Ingress: 1000}, ""},
		{"1P", "1500m", invalid, "ingress-bandwidth"},
		{"999", "5M", invalid, "egress-bandwidth]: 999 bit/s is not between 1k and 1P"},
		{"2P", "-5M", invalid, "egress-bandwidth"},
		{"fast", "", invalid, `"fast" is no quantity`},
		{strings.Repeat("1", 33), "", invalid, "at most 32 characters"},
		{"1e6", "1P", &Bandwidth{Egress: 1e6, Ingress: 1e15}, ""},
		{"1e6", "1E", invalid, "1E bit/s is not between"},
		// Each of these takes seconds and more to compare.
		{"1e10000000", "1E-2147483648", invalid, "exponent"},
		{"1E+2147483647", "5M", invalid, `"1E+2147483647" is no quantity: its exponent`},
		{"-1e10000000", "1e4294967299", invalid, "exponent"},
	} {
		annotations := map[string]string{"other": "5M"}
		if test.egress != "" {
			annotations[EgressBandwidthAnnotation] = test.egress
		}
		if test.ingress != "" {
			annotations[IngressBandwidthAnnotation] = test.ingress
		}
		var said []string
		got := bandwidthOf(annotations, func(field, format string, args ...any) { said = append(said, field+": "+fmt.Sprintf(format, args...)) })
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%q, %q: %+v, want %+v", test.egress, test.ingress, got, test.want)
		}
		if all := strings.Join(said, "\n"); (all == "") != (test.says == "") || !strings.Contains(all, test.says) {
			t.Errorf("%q, %q: says %q, want %q", test.egress, test.ingress, all, test.says)
		}
	}
}
