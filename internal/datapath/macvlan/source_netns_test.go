package macvlan_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A pod with NET_ADMIN adds a macvlan device in mode source that lists the MACs of other stations. It gets no copy of what these send to the
// node or to another pod, and swallows nothing.
func TestMacvlanSourceMode(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	attacker, victim := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	var listed []string
	for _, mac := range []fwd.MAC{fixtures.Router, n.B.Mac, n.A.Mac, victim.Mac} {
		listed = append(listed, net.HardwareAddr(mac[:]).String())
	}
	attacker.Do(t, func() error {
		for _, command := range []string{"ip link add link eth0 name sniff type macvlan mode source nodst", "ip link set sniff up"} {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %s", command, out)
			}
		}
		for _, mac := range listed {
			if out, err := exec.Command("ip", "link", "set", "link", "dev", "sniff", "type", "macvlan", "macaddr", "add", mac).CombinedOutput(); err != nil {
				t.Fatalf("%s: %s", mac, out)
			}
		}
		return nil
	})
	for _, family := range fixtures.Families {
		if err := n.A.Ping(t, n.A.Addr(family), n.B.Addr(family)); err != nil {
			t.Errorf("IPv%d: the node does not reach another node: %v", family, err)
		}
		netlab.Carries(t, *n.External, victim.Netns, n.ExternalOnSwitch(family), victim.Addr(family))
	}
	time.Sleep(100 * time.Millisecond)
	if got := received(t, attacker.Netns, "sniff"); got != "0" {
		t.Errorf("the sniffer has got %s frames", got)
	}
}

// received gives how many packets a device of a pod has received.
func received(t *testing.T, pod netlab.Netns, device string) (packets string) {
	t.Helper()
	pod.Do(t, func() error {
		all, err := os.ReadFile("/proc/thread-self/net/dev")
		for line := range strings.Lines(string(all)) {
			if name, counters, _ := strings.Cut(strings.TrimSpace(line), ":"); name == device {
				packets = strings.Fields(counters)[1]
			}
		}
		return err
	})
	return packets
}
