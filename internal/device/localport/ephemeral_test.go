package localport

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
)

func TestOutside(t *testing.T) {
	for _, c := range []struct{ all, other, want Range }{
		{Range{32768, 60999}, Range{40000, 65535}, Range{32768, 39999}},
		{Range{32768, 60999}, Range{30000, 40000}, Range{40001, 60999}},
		{Range{32768, 60999}, Range{35000, 40000}, Range{40001, 60999}},
		{Range{32768, 60999}, Range{50000, 60000}, Range{32768, 49999}},
		{Range{32768, 60999}, Range{32769, 65535}, Range{32768, 32768}},
		{Range{32768, 60999}, Range{1024, 2047}, Range{32768, 60999}},
		{Range{32768, 60999}, Range{32768, 65535}, Range{32768, 60999}},
	} {
		if got := c.all.Outside(c.other); got != c.want {
			t.Errorf("%v outside %v is %v, want %v", c.all, c.other, got, c.want)
		}
	}
}

func TestEphemeral(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		for _, want := range []Range{{32768, 39999}, {1024, 65535}} {
			if err := SetEphemeral(want); err != nil {
				return err
			}
			if got, err := Ephemeral(); err != nil || got != want {
				t.Errorf("ephemeral ports are %v, want %v (%v)", got, want, err)
			}
		}
		return nil
	})
}
