// Package value has the types of the agent's flags that the standard library lacks.
package value

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/device/localport"
)

// PortRange is a range of ports, written "40000-65535".
type PortRange localport.Range

// MarshalText implements encoding.TextMarshaler.
func (r PortRange) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d-%d", r.First, r.Last), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *PortRange) UnmarshalText(text []byte) error {
	from, to, ok := strings.Cut(string(text), "-")
	first, err := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if !ok || err != nil || err2 != nil || first == 0 || first > last {
		return fmt.Errorf("%q is not a range of ports, as 40000-65535 is", text)
	}
	*r = PortRange{uint16(first), uint16(last)}
	return nil
}

// String implements fmt.Stringer.
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Prefixes is a comma-separated list of CIDRs.
type Prefixes []netip.Prefix

// MarshalText writes the list.
func (p Prefixes) MarshalText() ([]byte, error) {
	var all []string
	for _, prefix := range p {
		all = append(all, prefix.String())
	}
	return []byte(strings.Join(all, ",")), nil
}

// UnmarshalText reads a list. It rejects host bits: 192.0.2.1/24 could mean a network or an address.
func (p *Prefixes) UnmarshalText(text []byte) error {
	*p = nil
	for _, field := range List(string(text)) {
		prefix, err := netip.ParsePrefix(field)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR, as 192.0.2.0/24 is", field)
		}
		if prefix != prefix.Masked() {
			return fmt.Errorf("%s is not a network: its host bits are not zero; did you mean %s?", prefix, prefix.Masked())
		}
		*p = append(*p, prefix)
	}
	return nil
}

// Networks is like Prefixes, but the empty list is written "none".
type Networks Prefixes

// MarshalText writes the list.
func (n Networks) MarshalText() ([]byte, error) {
	if len(n) == 0 {
		return []byte("none"), nil
	}
	return Prefixes(n).MarshalText()
}

// UnmarshalText reads a list.
func (n *Networks) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*n = nil
		return nil
	}
	return (*Prefixes)(n).UnmarshalText(text)
}

// TableSize is the number of entries of a Maglev table, or "auto", which is 0.
type TableSize int

// MarshalText writes the size.
func (s TableSize) MarshalText() ([]byte, error) {
	if s == 0 {
		return []byte("auto"), nil
	}
	return strconv.AppendInt(nil, int64(s), 10), nil
}

// UnmarshalText reads a size.
func (s *TableSize) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*s = 0
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("%q is neither a number nor \"auto\"", text)
	}
	*s = TableSize(n)
	return nil
}

// List splits a value at its commas; an empty value has no parts.
func List(text string) (all []string) {
	for field := range strings.SplitSeq(text, ",") {
		if field = strings.TrimSpace(field); field != "" {
			all = append(all, field)
		}
	}
	return all
}

// OneOf is an error if the value of a flag is none of these.
func OneOf[T ~string](flag string, got T, all ...T) error {
	if slices.Contains(all, got) {
		return nil
	}
	var quoted []string
	for _, v := range all {
		quoted = append(quoted, strconv.Quote(string(v)))
	}
	return fmt.Errorf("%s: %q is none of %s", flag, got, strings.Join(quoted, ", "))
}

// Between is an error if the value of a flag is out of bounds.
func Between(flag string, got, least, most int) error {
	if got < least || got > most {
		return fmt.Errorf("%s: %d is not between %d and %d", flag, got, least, most)
	}
	return nil
}

// MaxTableSize bounds the sizes of tables: maps of this size still fit a machine.
const MaxTableSize = 1 << 24
