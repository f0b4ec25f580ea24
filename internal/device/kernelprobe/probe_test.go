package kernelprobe

import (
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestProbeKinds(t *testing.T) {
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		before, err := netns.Get()
		if err != nil {
			return err
		}
		defer before.Close()
		found := Kinds()
		for _, name := range []string{"veth", "macvlan", "ipvlan", "vxlan", "geneve", "wireguard", "netkit", "vrf", "dummy",
			"clsact", "fq", "fq_codel", "netem", "esp4", "esp6"} {
			err, probed := found[name]
			t.Logf("%-10s %v", name, err)
			if !probed {
				t.Errorf("%s was not probed", name)
			}
		}
		// The other tests of this package would fail without these.
		for _, name := range []string{"veth", "clsact"} {
			if found[name] != nil {
				t.Errorf("%s: %v", name, found[name])
			}
		}
		after, err := netns.Get()
		if err != nil {
			return err
		}
		defer after.Close()
		if !before.Equal(after) {
			t.Error("the thread is in another namespace now")
		}
		links, err := netlink.LinkList()
		if len(links) != 1 {
			t.Errorf("left behind: %v", links)
		}
		return err
	})
}
