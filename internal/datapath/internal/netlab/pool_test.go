package netlab

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// The datapath of a network that was used is on no device any more, and empty for the next network, which attaches it as its own.
func TestSpareNetworksAreEmpty(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			o := Options{Cfg: config.Datapath{EBPFRouting: true, Masquerade: true, NATPorts: localport.Range{First: 50000, Last: 60000}}, Legacy: legacy}
			var first *Network
			t.Run("used", func(t *testing.T) {
				first = NewNetwork(t, o)
				first.CarriesPods(t)
				first.A1.Send(t, "eth0", fixtures.Eth(first.A1.Mac, first.A1.Gateway).Ipv4(fixtures.PodB.V4, first.A2.V4).Udp(1, 2).Bytes())
				first.AwaitDropped(t, first.A, map[string]uint64{bpf.ProgFromPod + " spoofed_source": 1})
			})
			next := NewNetwork(t, o)
			used := []*harness.Opened{first.A.D, first.B.D}
			if !slices.Contains(used, next.A.D) || !slices.Contains(used, next.B.D) {
				t.Fatal("the datapaths are not kept")
			}
			next.DropsNothing(t)
			next.CarriesPods(t)
			next.DropsNothing(t)
			if err := next.A.D.Commit(); err != nil {
				t.Error(err)
			}
			for _, name := range load.PinnedMaps {
				if _, err := os.Stat(next.A.D.Objects.Pins.Path(name)); err != nil {
					t.Errorf("a map is not pinned: %v", err)
				}
			}
		})
	}
}
