package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// A problem names a few of many routes, and how to remove each kind.
func TestForeignProblem(t *testing.T) {
	if text := ForeignProblem(nil, nil); text != "" {
		t.Errorf("without any: %s", text)
	}
	routes := []route.Foreign{
		{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Device: "cni0"},
		{Prefix: netip.MustParsePrefix("10.1.0.64/26"), Kind: "blackhole", Protocol: 80},
	}
	for i := range 300 {
		routes = append(routes, route.Foreign{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 2+i/256, i%256)), Device: "flannel.1"})
	}
	text := ForeignProblem(routes, nil)
	for _, want := range []string{"10.1.0.0/24 dev cni0", "and 298 more", "(ip link delete cni0; ip route delete blackhole 10.1.0.64/26 proto 80; ip link delete flannel.1)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	own := []route.Foreign{
		{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Device: "eth0", Index: 2}, {Prefix: netip.MustParsePrefix("10.2.0.0/24"), Device: "ens3", Index: 3, Physical: true},
	}
	if text := ForeignProblem(own, []netdev.Uplink{{Name: "eth0", Index: 2}}); strings.Contains(text, "ip link delete") || !strings.Contains(text, "(ip route delete 10.1.0.0/24 dev eth0; ip route delete 10.2.0.0/24 dev ens3)") {
		t.Errorf("of the node's own devices: %s", text)
	}
	if len(text) > 1000 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
