package localport

import (
	"fmt"
	"os"
	"path/filepath"
)

// ephemeralKey is the range of ephemeral ports, of IPv4 and IPv6.
const ephemeralKey = "net/ipv4/ip_local_port_range"

// Ephemeral returns the range from which the kernel chooses the ports of sockets that request none.
func Ephemeral() (r Range, err error) {
	content, err := os.ReadFile(filepath.Join("/proc/sys", ephemeralKey))
	if err != nil {
		return r, fmt.Errorf("read sysctl %s: %w", ephemeralKey, err)
	}
	if _, err := fmt.Sscan(string(content), &r.First, &r.Last); err != nil {
		return r, fmt.Errorf("read sysctl %s: %w", ephemeralKey, err)
	}
	return r, nil
}

// SetEphemeral sets the range of ephemeral ports.
func SetEphemeral(r Range) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", ephemeralKey), fmt.Appendf(nil, "%d %d\n", r.First, r.Last), 0); err != nil {
		return fmt.Errorf("set sysctl %s: %w", ephemeralKey, err)
	}
	return nil
}

// Outside returns the larger part of r that is not in other; all of r if nothing else is left.
func (r Range) Outside(other Range) Range {
	largest := Range{}
	for i, part := range subtract([]Range{r}, []Range{other}) {
		if i == 0 || part.Last-part.First > largest.Last-largest.First {
			largest = part
		}
	}
	if largest == (Range{}) {
		return r
	}
	return largest
}
