package device

import (
	"fmt"
	"os"
	"path/filepath"
)

// localPortsKey is the range that the kernel chooses a port from for a socket that asks for any, of IPv4 and IPv6.
const localPortsKey = "net/ipv4/ip_local_port_range"

// LocalPorts gives the range that the kernel chooses ports of sockets from.
func LocalPorts() (s PortSpan, err error) {
	content, err := os.ReadFile(filepath.Join("/proc/sys", localPortsKey))
	if err != nil {
		return s, fmt.Errorf("read sysctl %s: %w", localPortsKey, err)
	}
	if _, err := fmt.Sscan(string(content), &s.First, &s.Last); err != nil {
		return s, fmt.Errorf("read sysctl %s: %w", localPortsKey, err)
	}
	return s, nil
}

// SetLocalPorts makes the kernel choose ports of sockets from this range.
func SetLocalPorts(s PortSpan) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", localPortsKey), fmt.Appendf(nil, "%d %d\n", s.First, s.Last), 0); err != nil {
		return fmt.Errorf("set sysctl %s: %w", localPortsKey, err)
	}
	return nil
}

// Beside gives the larger part of a span that is not in another one; all of it if nothing else would be left.
func (s PortSpan) Beside(other PortSpan) PortSpan {
	largest := PortSpan{}
	for i, part := range subtract([]PortSpan{s}, []PortSpan{other}) {
		if i == 0 || part.Last-part.First > largest.Last-largest.First {
			largest = part
		}
	}
	if largest == (PortSpan{}) {
		return s
	}
	return largest
}
