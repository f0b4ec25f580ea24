package localport

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// ephemeralKey is the range of ephemeral ports, of IPv4 and IPv6.
const ephemeralKey = "net/ipv4/ip_local_port_range"

// Ephemeral returns the range from which the kernel chooses the ports of sockets that request none.
func Ephemeral() (r Range, err error) {
	text, err := sysctl.Get(ephemeralKey)
	if err != nil {
		return r, err
	}
	if _, err := fmt.Sscan(text, &r.First, &r.Last); err != nil {
		return r, fmt.Errorf("read sysctl %s: %w", ephemeralKey, err)
	}
	return r, nil
}

// SetEphemeral sets the range of ephemeral ports.
func SetEphemeral(r Range) error {
	_, err := sysctl.Set(ephemeralKey, fmt.Sprintf("%d\t%d", r.First, r.Last)) // as the kernel prints it
	return err
}

// Outside returns the larger part of r that is not in other; all of r if nothing else is left.
func (r Range) Outside(other Range) Range {
	parts := subtract([]Range{r}, []Range{other})
	if len(parts) == 0 {
		return r
	}
	return slices.MaxFunc(parts, func(a, b Range) int { return cmp.Compare(a.Last-a.First, b.Last-b.First) })
}
