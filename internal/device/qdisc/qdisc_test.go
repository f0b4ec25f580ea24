package qdisc

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// onNode runs f in a namespace with the device up0.
func onNode(t *testing.T, f func(up0 int)) {
	t.Helper()
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		f(link.Attrs().Index)
		return nil
	})
}

func wantLimit(t *testing.T, index int, want uint64) {
	t.Helper()
	if got, err := Limited(index); err != nil || got != want {
		t.Errorf("the limit is %d bytes/s, want %d: %v", got, want, err)
	}
}

// A limit is set, changed and removed, and what others have set stays where there is none.
func TestLimit(t *testing.T) {
	onNode(t, func(up0 int) {
		for _, rate := range []uint64{0, 125, 125_000_000, 1_250_000_000_0, 0, 0} {
			if err := Limit(up0, rate); err != nil {
				t.Fatalf("%d bytes/s: %v", rate, err)
			}
			wantLimit(t, up0, rate)
		}
		other := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: up0, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}, Rate: 1000, Limit: 10000, Buffer: netlink.Xmittime(1000, 10000)}
		if err := netlink.QdiscAdd(other); err != nil {
			t.Fatal(err)
		}
		if err := Limit(up0, 0); err != nil {
			t.Error(err)
		}
		if root, err := rootOf(up0); err != nil || root == nil || root.handle != netlink.MakeHandle(1, 0) || root.rate != 1000 {
			t.Errorf("the qdisc of another program is now %v: %v", root, err)
		}
	})
	if err := Limit(1<<30, 1000); err == nil {
		t.Error("no error for a device that does not exist")
	}
}

// The qdisc fq is set at a device with a qdisc of the kernel's choice, and removed again.
func TestHoldDepartures(t *testing.T) {
	onNode(t, func(up0 int) {
		err := HoldDepartures(up0)
		if errors.Is(err, ErrNotHeld) {
			testenv.Missing(t, "not on this kernel: the qdisc fq")
		}
		if err != nil {
			t.Fatal(err)
		}
		if root, err := rootOf(up0); err != nil || root.kind != "fq" || root.handle != handle {
			t.Fatalf("the qdisc is %v: %v", root, err)
		}
		all, err := list(up0)
		if err != nil {
			t.Fatal(err)
		}
		if fq := find(all, netlink.HANDLE_ROOT).(*netlink.Fq); fq.HorizonDropPolicy != netlink.HORIZON_DROP_POLICY_CAP {
			t.Errorf("packets of slow connections of the node are dropped: %v", fq)
		}
		names, err := ReleaseAll()
		if err != nil || len(names) != 1 || names[0] != "up0" {
			t.Errorf("released %q: %v", names, err)
		}
		if root, err := rootOf(up0); err != nil || root != nil && root.kind == "fq" {
			t.Errorf("the qdisc is %v: %v", root, err)
		}
	})
}

// A qdisc that somebody has chosen stays, and is named.
func TestHoldDeparturesBesideOthers(t *testing.T) {
	onNode(t, func(up0 int) {
		if err := Limit(up0, 1000); err != nil {
			t.Fatal(err)
		}
		if err := HoldDepartures(up0); !errors.Is(err, ErrNotHeld) {
			t.Errorf("beside tbf: %v", err)
		}
		if err := ReleaseDepartures(up0); err != nil {
			t.Error(err)
		}
	})
}

// The queues of an mq that somebody has chosen stay as they are: nothing would remove what the agent sets there.
func TestHoldDeparturesAtQueuesOfOthers(t *testing.T) {
	onNode(t, func(int) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = "up1", 2, 2
		veth := netlink.NewVeth(attrs)
		veth.PeerName = "wire1"
		if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth)); err != nil {
			t.Fatal(err)
		}
		index := veth.Index
		mq := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}, QdiscType: "mq"}
		if err := netlink.QdiscReplace(mq); err != nil {
			t.Fatal(err)
		}
		if err := HoldDepartures(index); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "a queue of device") {
			t.Errorf("at the queues of another program: %v", err)
		}
	})
}

// Devices without a qdisc have none, as those that do not exist; what the kernel chooses has no handle.
func TestRootOf(t *testing.T) {
	onNode(t, func(up0 int) {
		if q, err := rootOf(up0); err != nil || q == nil || q.kind != "noqueue" || q.handle != 0 {
			t.Errorf("the qdisc of a new device is %+v: %v", q, err)
		}
		if q, err := rootOf(1); err != nil || q != nil && q.handle != 0 { // lo, which may be down
			t.Errorf("the qdisc of lo is %+v: %v", q, err)
		}
		if q, err := rootOf(1 << 30); err != nil || q != nil {
			t.Errorf("a device that does not exist has %+v: %v", q, err)
		}
	})
}
