package device

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// reservedPortsKey is the list of ports that the kernel gives to no socket that asks for any port.
const reservedPortsKey = "net/ipv4/ip_local_reserved_ports"

// reservedPortsMax is more than the longest list has, in bytes: every other port, each of five digits and a comma.
const reservedPortsMax = 6 * 1 << 15

// PortSpan is a span of ports; both ends belong to it.
type PortSpan struct{ First, Last uint16 }

// UnreservedPorts gives the parts of a span that are not reserved: what ReservePorts would add.
func UnreservedPorts(span PortSpan) ([]PortSpan, error) {
	reserved, err := reservedPorts()
	if err != nil {
		return nil, err
	}
	return subtract([]PortSpan{span}, reserved), nil
}

// ReservePorts makes the kernel keep its own sockets off a span of ports, unless they ask for one by its number. What others have
// reserved stays. Of the span it gives those parts that it added, which are what ReleasePorts is to be told.
func ReservePorts(span PortSpan) (added []PortSpan, err error) {
	reserved, err := reservedPorts()
	if err != nil {
		return nil, err
	}
	added = subtract([]PortSpan{span}, reserved)
	if len(added) == 0 {
		return nil, nil
	}
	return added, setReservedPorts(JoinSpans(append(reserved, added...)))
}

// ReleasePorts takes spans off the reserved ports.
func ReleasePorts(spans []PortSpan) error {
	reserved, err := reservedPorts()
	if err != nil {
		return err
	}
	return setReservedPorts(subtract(reserved, spans))
}

func reservedPorts() ([]PortSpan, error) {
	f, err := os.Open(filepath.Join("/proc/sys", reservedPortsKey))
	if err != nil {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	defer f.Close()
	// The kernel gives the list to the first read alone (proc_do_large_bitmap): what does not fit there would be lost.
	content := make([]byte, reservedPortsMax)
	n, err := f.Read(content)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	spans, err := parseSpans(strings.TrimSpace(string(content[:n])))
	if err != nil {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	return spans, nil
}

func setReservedPorts(spans []PortSpan) error {
	// An empty list is written as a line end.
	if err := os.WriteFile(filepath.Join("/proc/sys", reservedPortsKey), []byte(formatSpans(spans)+"\n"), 0); err != nil {
		return fmt.Errorf("set sysctl %s: %w", reservedPortsKey, err)
	}
	return nil
}

// parseSpans reads "8080,9000-9010".
func parseSpans(text string) (spans []PortSpan, err error) {
	for field := range strings.SplitSeq(text, ",") {
		if field == "" {
			continue
		}
		from, to, isSpan := strings.Cut(field, "-")
		if !isSpan {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return nil, err
		}
		last, err := strconv.ParseUint(to, 10, 16)
		if err != nil {
			return nil, err
		}
		spans = append(spans, PortSpan{uint16(first), uint16(last)})
	}
	return spans, nil
}

func formatSpans(spans []PortSpan) string {
	var fields []string
	for _, s := range spans {
		if s.First == s.Last {
			fields = append(fields, fmt.Sprint(s.First))
		} else {
			fields = append(fields, fmt.Sprintf("%d-%d", s.First, s.Last))
		}
	}
	return strings.Join(fields, ",")
}

// JoinSpans sorts spans and makes one of those that touch.
func JoinSpans(spans []PortSpan) (joined []PortSpan) {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b PortSpan) int { return cmp.Compare(a.First, b.First) })
	for _, s := range spans {
		if n := len(joined); n > 0 && int(s.First) <= int(joined[n-1].Last)+1 {
			joined[n-1].Last = max(joined[n-1].Last, s.Last)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// subtract gives what is in spans and in none of the others.
func subtract(spans, others []PortSpan) []PortSpan {
	for _, o := range others {
		var rest []PortSpan
		for _, s := range spans {
			if o.Last < s.First || o.First > s.Last {
				rest = append(rest, s)
				continue
			}
			if s.First < o.First {
				rest = append(rest, PortSpan{s.First, o.First - 1})
			}
			if s.Last > o.Last {
				rest = append(rest, PortSpan{o.Last + 1, s.Last})
			}
		}
		spans = rest
	}
	return spans
}
