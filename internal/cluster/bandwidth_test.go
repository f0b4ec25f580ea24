package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// An invalid limit changes nothing else of a Pod: policies select it by the labels that it has now. Else whoever may annotate a pod could
// keep it from being isolated by a label.
func TestInvalidBandwidthKeepsPod(t *testing.T) {
	pod := func(address string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"isolated": "true"}, Annotations: map[string]string{EgressBandwidthAnnotation: "fast"}},
			Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: address}}},
		}
	}
	reduced, err := Reduce(pod("10.1.1.2"))
	if err == nil || !strings.Contains(err.Error(), "Pod default/web: metadata.annotations[kubernetes.io/egress-bandwidth]") {
		t.Errorf("error %v", err)
	}
	if p, ok := reduced.(*Pod); !ok || p.Labels != NewLabels(map[string]string{"isolated": "true"}) || len(p.Addresses) != 1 || *p.Bandwidth != (Bandwidth{Invalid: true}) {
		t.Errorf("the Pod is %+v", reduced)
	}
	if reduced, err := Reduce(pod("10.1.1")); reduced != nil || err == nil {
		t.Errorf("with a wrong address, too, the Pod is %+v: %v", reduced, err)
	}
}
