package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// Quantities of Kubernetes, in bit/s; what has no meaning is an error that names the annotation, and no limit.
func TestBandwidthOf(t *testing.T) {
	for _, test := range []struct {
		egress, ingress string
		want            *Bandwidth
		says            string
	}{
		{"", "", nil, ""},
		{"10M", "", &Bandwidth{Egress: 10e6}, ""},
		{"1Gi", "1k", &Bandwidth{Egress: 1 << 30, Ingress: 1000}, ""},
		{"1P", "1500m", &Bandwidth{Egress: 1e15}, "ingress-bandwidth"},
		{"999", "5M", &Bandwidth{Ingress: 5e6}, "egress-bandwidth]: 999 bit/s is not between 1k and 1P"},
		{"2P", "-5M", nil, "egress-bandwidth"},
		{"fast", "", nil, `"fast" is no quantity`},
		{strings.Repeat("1", 33), "", nil, "at most 32 characters"},
		{"1e6", "1E", &Bandwidth{Egress: 1e6}, "1E bit/s is not between"},
		// Each of these takes seconds and more to compare.
		{"1e10000000", "1E-2147483648", nil, "exponent"},
		{"1E+2147483647", "5M", &Bandwidth{Ingress: 5e6}, `"1E+2147483647" is no quantity: its exponent`},
		{"-1e10000000", "1e4294967299", nil, "exponent"},
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
