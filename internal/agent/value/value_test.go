package value

import (
	"encoding"
	"testing"
)

func TestValuesOfFlags(t *testing.T) {
	for _, c := range []struct {
		value encoding.TextUnmarshaler
		text  string
		want  string // how it is written again; empty: it is refused
	}{
		{new(PortRange), "40000-65535", "40000-65535"},
		{new(PortRange), "40000", ""},
		{new(PortRange), "5-4", ""},
		{new(PortRange), "0-4", ""},
		{new(PortRange), "1-65536", ""},
		{new(Prefixes), "192.0.2.0/24, 2001:db8::/32", "192.0.2.0/24,2001:db8::/32"},
		{new(Prefixes), "192.0.2.1/24", ""},
		{new(Prefixes), "192.0.2.1", ""},
		{new(Networks), "none", "none"},
		{new(Networks), "", "none"},
		{new(Networks), "192.0.2.0/24,2001:db8::/32", "192.0.2.0/24,2001:db8::/32"},
		{new(Networks), "all", ""},
		{new(TableSize), "auto", "auto"},
		{new(TableSize), "65537", "65537"},
		{new(TableSize), "many", ""},
	} {
		err := c.value.UnmarshalText([]byte(c.text))
		if (err != nil) != (c.want == "") {
			t.Errorf("%T %q: error is %v", c.value, c.text, err)
			continue
		}
		if err != nil {
			continue
		}
		got, err := c.value.(encoding.TextMarshaler).MarshalText()
		if err != nil || string(got) != c.want {
			t.Errorf("%T %q is written %q, want %q (%v)", c.value, c.text, got, c.want, err)
		}
	}
}
