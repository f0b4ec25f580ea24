package bandwidth

import (
	"log/slog"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// Limits that come and go do not have the qdisc of an uplink replaced each time: packets of all pods wait there.
func TestUplinksKeepQdisc(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		index := link.Attrs().Index
		// In place of fq, which not every kernel has: one of an earlier agent.
		own := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xbee0, 0), Parent: netlink.HANDLE_ROOT}, QdiscType: "pfifo"}
		if err := netlink.QdiscAdd(own); err != nil {
			return err
		}
		l, uplinks, now := New(fwd.Limits{}, slog.New(slog.DiscardHandler)), []netdev.Uplink{{Name: "up0", Index: index}}, time.Now()
		for _, step := range []struct {
			after   time.Duration
			limited bool
			kept    bool
		}{{0, true, true}, {time.Second, false, true}, {time.Second, true, true}, {releaseAfter - time.Second, false, true}, {2 * time.Second, false, false}} {
			now = now.Add(step.after)
			if err := l.syncUplinks(uplinks, step.limited, now); err != nil {
				t.Error(err)
			}
			all, err := netlink.QdiscList(link)
			if err != nil {
				return err
			}
			if kept := len(all) > 0 && all[0].Type() == "pfifo"; kept != step.kept {
				t.Errorf("limited %t, after %s: kept %t, want %t", step.limited, step.after, kept, step.kept)
			}
		}
		return nil
	})
}
