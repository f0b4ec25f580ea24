package kernelprobe

import (
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestProbe(t *testing.T) {
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		before, err := netns.Get()
		if err != nil {
			return err
		}
		defer before.Close()
		t.Logf("VXLAN: %v", VXLAN())
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
