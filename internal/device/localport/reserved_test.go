package localport

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
)

// Reservations of others stay, also inside the range, and Release restores the list.
func TestReserve(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		for before, c := range map[string]struct {
			during string
			added  []Range
		}{
			"":                      {"40000-65535", []Range{{40000, 65535}}},
			"8080":                  {"8080,40000-65535", []Range{{40000, 65535}}},
			"30000-32767,50000":     {"30000-32767,40000-65535", []Range{{40000, 49999}, {50001, 65535}}},
			"39999,65535":           {"39999-65535", []Range{{40000, 65534}}},
			"30000-40010":           {"30000-65535", []Range{{40011, 65535}}},
			"1000-2000,39000-65535": {"1000-2000,39000-65535", nil},
		} {
			ranges, err := parse(before)
			if err != nil {
				return err
			}
			if err := setReservedPorts(ranges); err != nil {
				return err
			}
			added, err := Reserve(Range{40000, 65535})
			if err != nil {
				return err
			}
			if diff := cmp.Diff(c.added, added); diff != "" {
				t.Errorf("%q: added (-want +got):\n%s", before, diff)
			}
			if again, err := Reserve(Range{40000, 65535}); err != nil || again != nil {
				t.Errorf("%q: a second time adds %v, error %v", before, again, err)
			}
			expectReserved(t, c.during)
			if err := Release(added); err != nil {
				return err
			}
			expectReserved(t, before)
		}
		return nil
	})
}

func expectReserved(t *testing.T, want string) {
	t.Helper()
	ranges, err := reservedPorts()
	if err != nil {
		t.Fatal(err)
	}
	if got := format(ranges); got != want {
		t.Errorf("reserved ports are %q, want %q", got, want)
	}
}

// The list is read whole even if it exceeds a page.
func TestReserveBesideMany(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		var many []Range
		for port := uint16(1); port < 39999; port += 2 {
			many = append(many, Range{port, port})
		}
		if err := setReservedPorts(many); err != nil {
			return err
		}
		added, err := Reserve(Range{40000, 65535})
		if err != nil {
			return err
		}
		expectReserved(t, format(many)+",40000-65535")
		if err := Release(added); err != nil {
			return err
		}
		expectReserved(t, format(many))
		return nil
	})
}
