// Package localport reads and sets which local ports the kernel gives to sockets: the reserved ports and the range of ephemeral ports.
package localport

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

// reservedPortsKey lists the ports that the kernel gives to no socket unless it requests them by number.
const reservedPortsKey = "net/ipv4/ip_local_reserved_ports"

// reservedPortsMax bounds the list's length in bytes: every other port, each of five digits and a comma.
const reservedPortsMax = 6 * 1 << 15

// Range is a range of ports, in host byte order, both ends included.
type Range struct{ First, Last uint16 }

// Unreserved returns the parts of r that are not reserved, which Reserve would add.
func Unreserved(r Range) ([]Range, error) {
	reserved, err := reservedPorts()
	if err != nil {
		return nil, err
	}
	return subtract([]Range{r}, reserved), nil
}

// Reserve reserves a range of ports and keeps what others reserved. It returns the parts that it added, for Release.
func Reserve(r Range) (added []Range, err error) {
	reserved, err := reservedPorts()
	if err != nil {
		return nil, err
	}
	added = subtract([]Range{r}, reserved)
	if len(added) == 0 {
		return nil, nil
	}
	return added, setReservedPorts(Join(append(reserved, added...)))
}

// Release removes ranges from the reserved ports.
func Release(ranges []Range) error {
	reserved, err := reservedPorts()
	if err != nil {
		return err
	}
	return setReservedPorts(subtract(reserved, ranges))
}

func reservedPorts() ([]Range, error) {
	f, err := os.Open(filepath.Join("/proc/sys", reservedPortsKey))
	if err != nil {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	defer f.Close()
	// One read returns the whole list (proc_do_large_bitmap); what does not fit into the buffer is lost.
	content := make([]byte, reservedPortsMax)
	n, err := f.Read(content)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	ranges, err := parse(strings.TrimSpace(string(content[:n])))
	if err != nil {
		return nil, fmt.Errorf("read sysctl %s: %w", reservedPortsKey, err)
	}
	return ranges, nil
}

func setReservedPorts(ranges []Range) error {
	// An empty list is a line end.
	if err := os.WriteFile(filepath.Join("/proc/sys", reservedPortsKey), []byte(format(ranges)+"\n"), 0); err != nil {
		return fmt.Errorf("set sysctl %s: %w", reservedPortsKey, err)
	}
	return nil
}

// parse reads "8080,9000-9010".
func parse(text string) (ranges []Range, err error) {
	for field := range strings.SplitSeq(text, ",") {
		if field == "" {
			continue
		}
		from, to, ok := strings.Cut(field, "-")
		if !ok {
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
		ranges = append(ranges, Range{uint16(first), uint16(last)})
	}
	return ranges, nil
}

func format(ranges []Range) string {
	var fields []string
	for _, s := range ranges {
		if s.First == s.Last {
			fields = append(fields, fmt.Sprint(s.First))
		} else {
			fields = append(fields, fmt.Sprintf("%d-%d", s.First, s.Last))
		}
	}
	return strings.Join(fields, ",")
}

// Join sorts ranges and merges ranges that touch or overlap.
func Join(ranges []Range) (joined []Range) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	for _, s := range ranges {
		if n := len(joined); n > 0 && int(s.First) <= int(joined[n-1].Last)+1 {
			joined[n-1].Last = max(joined[n-1].Last, s.Last)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// subtract returns the parts of ranges that are in none of the others.
func subtract(ranges, others []Range) []Range {
	for _, o := range others {
		var left []Range
		for _, s := range ranges {
			if o.Last < s.First || o.First > s.Last {
				left = append(left, s)
				continue
			}
			if s.First < o.First {
				left = append(left, Range{s.First, o.First - 1})
			}
			if s.Last > o.Last {
				left = append(left, Range{o.Last + 1, s.Last})
			}
		}
		ranges = left
	}
	return ranges
}
