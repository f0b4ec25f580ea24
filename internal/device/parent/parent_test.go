package parent

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// link makes attributes of an Ethernet device.
func link(name string, change func(*netlink.LinkAttrs)) netlink.LinkAttrs {
	attrs := netlink.LinkAttrs{Name: name, Index: 7, EncapType: "ether", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	if change != nil {
		change(&attrs)
	}
	return attrs
}

func TestRefusal(t *testing.T) {
	none := func(string) (map[string]bool, error) { return nil, nil }
	offloads := func(string) (map[string]bool, error) { return map[string]bool{"l2-fwd-offload": true}, nil }
	bond := func(int) (string, error) { return "bond0", nil }
	enslaved := func(a *netlink.LinkAttrs) { a.MasterIndex = 3 }
	for _, test := range []struct {
		name string
		link netlink.Link
		on   func(string) (map[string]bool, error)
		want string
	}{
		{"network card", &netlink.Device{LinkAttrs: link("eth0", nil)}, none, ""},
		{"VLAN", &netlink.Vlan{LinkAttrs: link("eth0.7", nil)}, none, ""},
		{"bond", &netlink.Bond{LinkAttrs: link("bond0", nil)}, none, ""},
		{"veth of another network", &netlink.Veth{LinkAttrs: link("wire", nil)}, none, ""},
		{"tunnel", &netlink.Device{LinkAttrs: link("tun0", func(a *netlink.LinkAttrs) { a.EncapType, a.HardwareAddr = "none", nil })}, none, "has no Ethernet address"},
		{"loopback", &netlink.Device{LinkAttrs: link("lo", func(a *netlink.LinkAttrs) { a.Flags = net.FlagLoopback })}, none, "has no Ethernet address"},
		{"bridge", &netlink.Bridge{LinkAttrs: link("br0", nil)}, none, "is a bridge"},
		{"slave", &netlink.Device{LinkAttrs: link("eth0", enslaved)}, none, "belongs to bond0, which takes its frames: use bond0"},
		{"pod", &netlink.Veth{LinkAttrs: link(device.HostName("c", "eth0"), nil)}, none, "is a device of a pod"},
		{"macvlan", &netlink.Macvlan{LinkAttrs: link("m0", nil)}, none, "is itself a macvlan device"},
		{"ipvlan", &netlink.IPVlan{LinkAttrs: link("i0", nil)}, none, "is itself a ipvlan device"},
		{"offload", &netlink.Device{LinkAttrs: link("eth0", nil)}, offloads, "ethtool -K eth0 l2-fwd-offload off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := refusal(test.link, bond, test.on)
			if err != nil || !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("refused since it %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// What cannot be read is no permission.
func TestRefusalNeedsFacts(t *testing.T) {
	broken := errors.New("broken on purpose")
	bad := func(string) (map[string]bool, error) { return nil, broken }
	if _, err := refusal(&netlink.Device{LinkAttrs: link("eth0", nil)}, nil, bad); !errors.Is(err, broken) {
		t.Errorf("features that cannot be read: %v", err)
	}
	unknown := func(int) (string, error) { return "", broken }
	enslaved := &netlink.Device{LinkAttrs: link("eth0", func(a *netlink.LinkAttrs) { a.MasterIndex = 3 })}
	if _, err := refusal(enslaved, unknown, bad); !errors.Is(err, broken) {
		t.Errorf("a master that cannot be read: %v", err)
	}
}

func TestFind(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		found, err := Find("up0")
		if err != nil {
			return err
		}
		if found.Name != "up0" || found.Index != up0.Attrs().Index || found.MTU != 1500 || found.MAC.String() != up0.Attrs().HardwareAddr.String() {
			t.Errorf("found %+v", found)
		}
		return nil
	})
}

// The kernel's own devices of the kinds that are refused.
func TestFindRefuses(t *testing.T) {
	node := devicetest.NewNode(t)
	devicetest.Inside(t, node, func() error {
		up0, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		if err := devicetest.AddVeth("port", "far"); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "port"}}, bridge)); err != nil {
			return err
		}
		stacked := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "m0", ParentIndex: up0}, Mode: netlink.MACVLAN_MODE_BRIDGE}
		if err := netlink.LinkAdd(stacked); err != nil {
			return err
		}
		for name, want := range map[string]string{
			"lo": "has no Ethernet address", "br0": "is a bridge", "port": "belongs to br0", "m0": "is itself a macvlan device",
		} {
			_, err := Find(name)
			if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", name, err, want)
			}
		}
		if _, err := Find("missing"); err == nil || errors.Is(err, ErrUnsuitable) {
			t.Errorf("a missing device: %v", err)
		}
		return nil
	})
}

// A bond is a parent and its slave is not.
func TestFindBond(t *testing.T) {
	node := testenv.NewNetns(t)
	devicetest.Inside(t, node, func() error {
		bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
		if err := netlink.LinkAdd(bond); errors.Is(err, unix.EOPNOTSUPP) {
			testenv.Missing(t, "not on this kernel: bonds")
		} else if err != nil {
			return err
		}
		if err := devicetest.AddVeth("slave", "far"); err != nil {
			return err
		}
		slave := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "slave"}}
		if err := errors.Join(netlink.LinkSetDown(slave), netlink.LinkSetMaster(slave, bond)); err != nil {
			return err
		}
		if _, err := Find("bond0"); err != nil {
			t.Error(err)
		}
		if _, err := Find("slave"); !errors.Is(err, ErrUnsuitable) || !strings.Contains(fmt.Sprint(err), "belongs to bond0") {
			t.Errorf("error %v", err)
		}
		return nil
	})
}

// A macvlan device that Beeline did not make takes the parent for itself, or an ipvlan device does: the kernel refuses.
func TestParentTaken(t *testing.T) {
	for _, test := range []struct {
		name  string
		taker func(attrs netlink.LinkAttrs) netlink.Link
		want  error
	}{
		{"passthru", func(a netlink.LinkAttrs) netlink.Link {
			return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_PASSTHRU}
		}, unix.EINVAL},
		{"ipvlan", func(a netlink.LinkAttrs) netlink.Link { return &netlink.IPVlan{LinkAttrs: a} }, unix.EBUSY},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := devicetest.NewNode(t)
			devicetest.Inside(t, node, func() error {
				up0, err := devicetest.IndexOf("up0")
				if err != nil {
					return err
				}
				if err := netlink.LinkAdd(test.taker(netlink.LinkAttrs{Name: "taker", ParentIndex: up0})); errors.Is(err, unix.EOPNOTSUPP) {
					testenv.Missing(t, "not on this kernel: "+test.name)
				} else if err != nil {
					return err
				}
				ours := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "ours", ParentIndex: up0}, Mode: netlink.MACVLAN_MODE_VEPA}
				if err := netlink.LinkAdd(ours); !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				return nil
			})
		})
	}
}
