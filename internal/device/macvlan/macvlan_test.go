package macvlan

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestNewMAC(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		mac := NewMAC()
		if len(mac) != 6 || mac[0]&3 != 2 {
			t.Fatalf("%s is not locally administered and unicast", mac)
		}
		if seen[mac.String()] {
			t.Fatalf("%s twice", mac)
		}
		seen[mac.String()] = true
	}
}

// fixture is a node with a parent and a pod.
type fixture struct {
	t         *testing.T
	node, pod ns.NetNS
	parent    int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, node: devicetest.NewNode(t), pod: testenv.NewNetns(t)}
	f.inNode(func() (err error) {
		f.parent, err = devicetest.IndexOf("up0")
		return err
	})
	return f
}

func (f *fixture) inNode(do func() error) { f.t.Helper(); devicetest.Inside(f.t, f.node, do) }
func (f *fixture) inPod(do func() error)  { f.t.Helper(); devicetest.Inside(f.t, f.pod, do) }

func (f *fixture) create(spec Spec) (made Device, err error) {
	f.inNode(func() error {
		made, err = Create(f.pod, spec)
		return nil
	})
	return made, err
}

func (f *fixture) find(name string) Device {
	f.t.Helper()
	found, err := Find(f.pod, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

// attempt runs a change that a pod with NET_ADMIN can make.
func (f *fixture) attempt(change func(link netlink.Link) error) {
	f.t.Helper()
	f.inPod(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return change(link)
	})
}

func TestCreate(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC(), MTU: 1400}
	made, err := f.create(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Check(spec); err != nil {
		t.Error(err)
	}
	if found := f.find("eth0"); found.Index != made.Index || found.ParentNetns < 0 {
		t.Errorf("found %+v, made %+v", found, made)
	}
	f.attempt(func(link netlink.Link) error {
		if link.Attrs().Flags&net.FlagUp != 0 {
			t.Error("the device is up before its programs are attached")
		}
		return nil
	})
	f.inNode(func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Type() == "macvlan" {
				t.Errorf("the node has %s", link.Attrs().Name)
			}
		}
		return err
	})
}

// The node may have a device with the name that the pod's gets.
func TestCreateNameOfNode(t *testing.T) {
	f := newFixture(t)
	if _, err := f.create(Spec{Parent: f.parent, Name: "up0", MAC: NewMAC()}); err != nil {
		t.Fatal(err)
	}
}

func TestCreateFails(t *testing.T) {
	f := newFixture(t)
	if _, err := f.create(Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		spec Spec
		want string
	}{
		{"name in use", Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}, "file exists"},
		{"no parent", Spec{Parent: 9999, Name: "eth1", MAC: NewMAC()}, "create macvlan device eth1 on device 9999"},
		{"MTU above the parent's", Spec{Parent: f.parent, Name: "eth1", MAC: NewMAC(), MTU: 1501}, "invalid argument"},
	} {
		if _, err := f.create(test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	if _, err := Find(f.pod, "eth1"); !rtnl.IsNotFound(err) {
		t.Errorf("a device that failed is there: %v", err)
	}
	if all, err := List(f.pod); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// The kernel lets no second device with a MAC, nor with that of the parent, be set up: pods cannot receive for each other.
func TestMACInUse(t *testing.T) {
	f := newFixture(t)
	ours := NewMAC()
	if _, err := f.create(Spec{Parent: f.parent, Name: "eth0", MAC: ours}); err != nil {
		t.Fatal(err)
	}
	f.attempt(netlink.LinkSetUp)
	var parents net.HardwareAddr
	f.inNode(func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		parents = up0.Attrs().HardwareAddr
		return nil
	})
	for _, mac := range []net.HardwareAddr{ours, parents} {
		other := testenv.NewNetns(t)
		f.inNode(func() error {
			_, err := Create(other, Spec{Parent: f.parent, Name: "eth0", MAC: mac})
			return err
		})
		devicetest.Inside(t, other, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("a second device with %s: %v", mac, err)
			}
			return nil
		})
	}
}

// What a pod with NET_ADMIN changes is found and set back.
func TestCheckAndRepair(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC(), MTU: 1500}
	if _, err := f.create(spec); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		want   string
		change func(link netlink.Link) error
	}{
		{"the mode of eth0 is bridge, not vepa", func(link netlink.Link) error {
			return netlink.LinkModify(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Index: link.Attrs().Index, Name: "eth0"}, Mode: netlink.MACVLAN_MODE_BRIDGE})
		}},
		{"the MAC of eth0 is 02:00:00:00:00:99, not", func(link netlink.Link) error {
			return netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 0x99})
		}},
		{"the MTU of eth0 is 1300, not 1500", func(link netlink.Link) error { return netlink.LinkSetMTU(link, 1300) }},
	} {
		f.attempt(test.change)
		if err := f.find("eth0").Check(spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
		if err := Repair(f.pod, spec); err != nil {
			t.Fatal(err)
		}
		if err := f.find("eth0").Check(spec); err != nil {
			t.Errorf("repaired: %v", err)
		}
	}
	if err := f.find("eth0").Check(Spec{Parent: f.parent + 1, MAC: spec.MAC}); err == nil {
		t.Error("another parent is no difference")
	}
}

// The kernel lowers macvlan devices with their parent and does not raise them again: Repair has to.
func TestParentMTU(t *testing.T) {
	f := newFixture(t)
	spec := Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC(), MTU: 1500}
	if _, err := f.create(spec); err != nil {
		t.Fatal(err)
	}
	setParent := func(mtu int) {
		f.inNode(func() error {
			up0, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(up0, mtu)
		})
	}
	setParent(1400)
	if mtu := f.find("eth0").MTU; mtu != 1400 {
		t.Errorf("MTU %d with a parent of 1400", mtu)
	}
	setParent(1500)
	if mtu := f.find("eth0").MTU; mtu != 1400 {
		t.Errorf("the kernel raised the MTU to %d: Repair need not", mtu)
	}
	if err := Repair(f.pod, spec); err != nil {
		t.Fatal(err)
	}
	if mtu := f.find("eth0").MTU; mtu != 1500 {
		t.Errorf("MTU %d, want 1500", mtu)
	}
}

// A pod's own macvlan devices stand on the node's device, not on the pod's: List finds them.
func TestListFindsDevicesOfThePod(t *testing.T) {
	f := newFixture(t)
	if _, err := f.create(Spec{Parent: f.parent, Name: "eth0", MAC: NewMAC()}); err != nil {
		t.Fatal(err)
	}
	f.attempt(func(link netlink.Link) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "x0", link.Attrs().Index
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_SOURCE})
	})
	all, err := List(f.pod)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, d := range all {
		if d.Parent != f.parent || d.ParentNetns != all[0].ParentNetns {
			t.Errorf("%+v is not on the node's device %d", d, f.parent)
		}
		if d.Name == "x0" && d.Mode != "source" {
			t.Errorf("%+v is not in source mode", d)
		}
	}
}

func TestFindOtherType(t *testing.T) {
	f := newFixture(t)
	f.inPod(func() error { return devicetest.AddVeth("eth0", "peer") })
	if _, err := Find(f.pod, "eth0"); err == nil || !strings.Contains(err.Error(), "its type is veth, not macvlan") {
		t.Errorf("error %v", err)
	}
	if err := Repair(f.pod, Spec{Name: "eth0"}); !rtnl.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
}

func TestDelete(t *testing.T) {
	f := newFixture(t)
	mac := NewMAC()
	for range 2 {
		if _, err := f.create(Spec{Parent: f.parent, Name: "eth0", MAC: mac}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := Delete(f.pod, "eth0"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Two pods on one parent exchange nothing past the parent: in vepa mode the kernel sends all to the wire.
func TestVepaSendsToTheWire(t *testing.T) {
	f := newFixture(t)
	other := testenv.NewNetns(t)
	macs := []net.HardwareAddr{NewMAC(), NewMAC()}
	for i, pod := range []ns.NetNS{f.pod, other} {
		f.inNode(func() error {
			_, err := Create(pod, Spec{Parent: f.parent, Name: "eth0", MAC: macs[i]})
			return err
		})
		devicetest.Inside(t, pod, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		})
	}
	received := -1
	devicetest.Inside(t, other, func() (err error) {
		received, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, experimental<<8|experimental>>8)
		return err
	})
	defer unix.Close(received)
	f.inPod(func() error { return send("eth0", macs[1], macs[0], "past the parent") })
	f.inNode(func() error { return send("wire", macs[1], NewMAC(), "from the wire") })
	frame := make([]byte, 100)
	if err := unix.SetsockoptTimeval(received, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	n, _, err := unix.Recvfrom(received, frame, 0)
	if err != nil || !bytes.Contains(frame[:n], []byte("from the wire")) {
		t.Errorf("received %q, %v", frame[:n], err)
	}
}

// experimental is an Ethernet type for local experiments (IEEE 802).
const experimental = 0x88b5

// send sends a frame by a device of the calling thread's namespace.
func send(name string, to, from net.HardwareAddr, payload string) error {
	index, err := devicetest.IndexOf(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := append(append(bytes.Clone(to), from...), experimental>>8, experimental&0xff)
	return unix.Sendto(fd, append(frame, payload...), 0, &unix.SockaddrLinklayer{Ifindex: index})
}
