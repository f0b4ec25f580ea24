package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// What others have reserved stays, also inside of the span, and comes back as it was.
func TestReservePorts(t *testing.T) {
	inside(t, newNode(t), func() error {
		for before, c := range map[string]struct {
			during string
			added  []PortSpan
		}{
			"":                      {"40000-65535", []PortSpan{{40000, 65535}}},
			"8080":                  {"8080,40000-65535", []PortSpan{{40000, 65535}}},
			"30000-32767,50000":     {"30000-32767,40000-65535", []PortSpan{{40000, 49999}, {50001, 65535}}},
			"39999,65535":           {"39999-65535", []PortSpan{{40000, 65534}}},
			"30000-40010":           {"30000-65535", []PortSpan{{40011, 65535}}},
			"1000-2000,39000-65535": {"1000-2000,39000-65535", nil},
		} {
			spans, err := parseSpans(before)
			if err != nil {
				return err
			}
			if err := setReservedPorts(spans); err != nil {
				return err
			}
			added, err := ReservePorts(PortSpan{40000, 65535})
			if err != nil {
				return err
			}
			if diff := cmp.Diff(c.added, added); diff != "" {
				t.Errorf("%q: added (-want +got):\n%s", before, diff)
			}
			if again, err := ReservePorts(PortSpan{40000, 65535}); err != nil || again != nil {
				t.Errorf("%q: a second time adds %v, error %v", before, again, err)
			}
			expectReserved(t, c.during)
			if err := ReleasePorts(added); err != nil {
				return err
			}
			expectReserved(t, before)
		}
		return nil
	})
}

func expectReserved(t *testing.T, want string) {
	t.Helper()
	spans, err := reservedPorts()
	if err != nil {
		t.Fatal(err)
	}
	if got := formatSpans(spans); got != want {
		t.Errorf("reserved ports are %q, want %q", got, want)
	}
}

func TestNamespaceCookie(t *testing.T) {
	own, err := NamespaceCookie()
	if err != nil {
		t.Fatal(err)
	}
	inside(t, testenv.NewNetns(t), func() error {
		other, err := NamespaceCookie()
		if other == own {
			t.Errorf("two namespaces have the cookie %d", own)
		}
		return err
	})
}

// A list that is longer than what programs read at once is read as a whole.
func TestReservePortsBesideMany(t *testing.T) {
	inside(t, newNode(t), func() error {
		var many []PortSpan
		for port := uint16(1); port < 39999; port += 2 {
			many = append(many, PortSpan{port, port})
		}
		if err := setReservedPorts(many); err != nil {
			return err
		}
		added, err := ReservePorts(PortSpan{40000, 65535})
		if err != nil {
			return err
		}
		expectReserved(t, formatSpans(many)+",40000-65535")
		if err := ReleasePorts(added); err != nil {
			return err
		}
		expectReserved(t, formatSpans(many))
		return nil
	})
}
