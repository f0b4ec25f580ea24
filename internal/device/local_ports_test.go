package device

import "testing"

func TestPortsBeside(t *testing.T) {
	for _, c := range []struct{ all, other, want PortSpan }{
		{PortSpan{32768, 60999}, PortSpan{40000, 65535}, PortSpan{32768, 39999}},
		{PortSpan{32768, 60999}, PortSpan{30000, 40000}, PortSpan{40001, 60999}},
		{PortSpan{32768, 60999}, PortSpan{35000, 40000}, PortSpan{40001, 60999}},
		{PortSpan{32768, 60999}, PortSpan{50000, 60000}, PortSpan{32768, 49999}},
		{PortSpan{32768, 60999}, PortSpan{32769, 65535}, PortSpan{32768, 32768}},
		{PortSpan{32768, 60999}, PortSpan{1024, 2047}, PortSpan{32768, 60999}},
		{PortSpan{32768, 60999}, PortSpan{32768, 65535}, PortSpan{32768, 60999}},
	} {
		if got := c.all.Beside(c.other); got != c.want {
			t.Errorf("%v beside %v is %v, want %v", c.all, c.other, got, c.want)
		}
	}
}

func TestLocalPorts(t *testing.T) {
	inside(t, newNode(t), func() error {
		for _, want := range []PortSpan{{32768, 39999}, {1024, 65535}} {
			if err := SetLocalPorts(want); err != nil {
				return err
			}
			if got, err := LocalPorts(); err != nil || got != want {
				t.Errorf("ports are chosen from %v, want %v (%v)", got, want, err)
			}
		}
		return nil
	})
}
