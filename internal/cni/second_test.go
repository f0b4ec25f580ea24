package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A second interface, as Multus adds them, has the IPPool of its network, and routes to that pool's networks only.
func TestAddSecondInterface(t *testing.T) {
	w := newFakeNode()
	w.networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
	a := args(conf(`,"ipPool":"office"`))
	a.IfName = "net1"
	if err := w.plugin().Add(a); err != nil {
		t.Fatal(err)
	}
	if len(w.added) != 1 || w.added[0].IPPool != "office" || w.added[0].IfName != "net1" {
		t.Errorf("requested %+v", w.added)
	}
	if got := w.configured["net1"]; !got.Second || fmt.Sprint(got.Networks) != fmt.Sprint(w.networks) {
		t.Errorf("configured %+v", got)
	}
	var printed struct{ Routes any }
	if err := json.Unmarshal(w.stdout.Bytes(), &printed); err != nil {
		t.Fatal(err)
	}
	want := object(t, `[{"dst": "10.1.0.0/24", "gw": "169.254.1.1"}, {"dst": "198.51.100.0/24", "gw": "169.254.1.1"}]`)
	if diff := cmp.Diff(want, printed.Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}
