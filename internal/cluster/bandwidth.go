package cluster

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/beeline-cni/beeline/internal/bandwidth"
)

// The annotations of Kubernetes that limit the bandwidth of a pod, a quantity in bit/s each.
const (
	EgressBandwidthAnnotation  = "kubernetes.io/egress-bandwidth"
	IngressBandwidthAnnotation = "kubernetes.io/ingress-bandwidth"
)

// Bandwidth has the limits of a pod's annotations, in bit/s; 0 is none.
type Bandwidth struct {
	// Egress is what the pod sends, Ingress what it receives.
	Egress, Ingress uint64
	// Invalid says that an annotation has no meaning: the limits are unknown.
	Invalid bool
}

var (
	bandwidthMin = resource.NewQuantity(bandwidth.Min, resource.DecimalSI)
	bandwidthMax = resource.NewQuantity(bandwidth.Max, resource.DecimalSI)
)

// annotationField is the beginning of what errors name the field of an annotation.
const annotationField = "metadata.annotations["

// bandwidthOf gives the limits of annotations; nil if there are none. A value without a meaning is an error.
func bandwidthOf(annotations map[string]string, fail func(field, format string, args ...any)) *Bandwidth {
	var limits Bandwidth
	for _, a := range []struct {
		name string
		to   *uint64
	}{{EgressBandwidthAnnotation, &limits.Egress}, {IngressBandwidthAnnotation, &limits.Ingress}} {
		text, ok := annotations[a.name]
		if !ok {
			continue
		}
		rate, err := parseBandwidth(text)
		if err != nil {
			fail(annotationField+a.name+"]", "%v", err)
			limits.Invalid = true
			continue
		}
		*a.to = rate
	}
	switch {
	case limits == (Bandwidth{}):
		return nil
	case limits.Invalid:
		return &Bandwidth{Invalid: true}
	}
	return &limits
}

func parseBandwidth(text string) (bitsPerSecond uint64, err error) {
	if len(text) > 32 {
		return 0, errors.New("a quantity has at most 32 characters")
	}
	if hasLongExponent(text) {
		return 0, fmt.Errorf("%q is no quantity: its exponent has more than two digits", text)
	}
	rate, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity: %w", text, err)
	}
	if rate.Cmp(*bandwidthMin) < 0 || rate.Cmp(*bandwidthMax) > 0 {
		return 0, fmt.Errorf("%s bit/s is not between %s and %s", text, bandwidthMin, bandwidthMax)
	}
	return uint64(rate.Value()), nil
}

// hasLongExponent reports whether a quantity has an exponent with more than two digits. Comparing a quantity computes the power: for
// 1e2147483647, a number of 900 MB.
func hasLongExponent(text string) bool {
	at := strings.LastIndexAny(text, "eE")
	return at >= 0 && len(strings.TrimLeft(text[at+1:], "+-")) > 2
}
