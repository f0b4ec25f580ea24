package endpoint

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/bandwidth"
	"github.com/beeline-cni/beeline/internal/agent/conntrack"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/ipam"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// bpffs mounts a BPF file system for the test, and gives a directory on it.
func bpffs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "beeline")
}

// A forgotten pod releases everything: its device, its file, its endpoint, and at last its addresses, which another
// pod gets. A pod that the cluster has keeps all of it.
func TestForgottenPodGivesItsAddressesBack(t *testing.T) {
	pods := testenv.NewNetns(t)
	err := testenv.NewNetns(t).Do(func(ns.NetNS) error {
		log, stateDir := slog.New(slog.DiscardHandler), t.TempDir()
		dp, err := datapath.Open(config.Datapath{Root: bpffs(t)}, log)
		if err != nil {
			return err
		}
		defer dp.Close()
		pool, err := ipam.NewPool(prefixes("10.1.1.0/30", "fd00:1::/126"))
		if err != nil {
			return err
		}
		expiry := conntrack.New(conntrack.Kernel{}, &loop.Beat{}, log)
		all, err := New(Options{
			StateDir: stateDir, Pool: pool, FailClosed: failclosed.New(failclosed.Node(dp.AttachPod), true, log), Limits: bandwidth.New(dp.Limits, log), Expiry: expiry, Log: log,
			Datapath: Datapath{Endpoints: dp.Endpoints, Macvlans: dp.Macvlans, ForgetConnections: dp.Conntrack.Forget, Detach: dp.Detach, CheckPod: dp.CheckPod},
		}, Node{})
		if err != nil {
			return err
		}
		staying := &cluster.Pod{Name: "stays", UID: cluster.NewUID("0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02")}
		snapshot := &cluster.Snapshot{Pods: cluster.ListOf(staying)}
		add := func(name, uid string) (agentapi.Endpoint, error) {
			link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device.HostName(name, "eth0")}, PeerName: "peer-" + name, PeerNamespace: netlink.NsFd(int(pods.Fd()))}
			if err := netlink.LinkAdd(link); err != nil {
				return agentapi.Endpoint{}, fmt.Errorf("make device of %s: %w", name, err)
			}
			e := agentapi.Endpoint{Pod: agentapi.PodRef{Namespace: "shop", Name: name, UID: uid}, HostDevice: link.Name, HostIfIndex: link.Index, Added: time.Now().Add(-time.Hour)}
			if e.Addresses, err = pool.Allocate(ownerOf(e)); err != nil {
				return e, err
			}
			for _, addr := range e.Addresses {
				if err := dp.Endpoints.Set(addr, fwd.Endpoint{Interface: e.HostIfIndex}); err != nil {
					return e, err
				}
			}
			all.all[e.HostDevice] = e
			return e, all.store.save(e)
		}
		stays, err := add("stays", "0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02")
		if err != nil {
			return err
		}
		gone, err := add("web", uidOfServer)
		if err != nil {
			return err
		}

		now := time.Now()
		for ago := forgottenAfter; ago > 0; ago -= time.Minute {
			if over := all.forgotten.look(now.Add(-ago), all.all, all.clusterPods(remoteSource{}, snapshot), device.Pods.PacketsFrom); len(over) > 0 {
				t.Errorf("forgotten too early: %v", over)
			}
		}
		used := func() (n int) {
			for _, u := range pool.Usage() {
				n += u.Used
			}
			return n
		}
		if got := used(); got != 4 {
			t.Errorf("%d addresses are in use before, want 4", got)
		}
		all.DropForgotten(remoteSource{}, snapshot)
		if got := used(); got != 2 {
			t.Errorf("%d addresses are in use, want the 2 of the other pod", got)
		}
		if _, there := all.all[gone.HostDevice]; there || len(all.all) != 1 {
			t.Errorf("endpoints are %+v", all.all)
		}
		if table, err := dp.Endpoints.All(); err != nil || len(table) != 2 {
			t.Errorf("the table of pods has %v: %v", table, err)
		}
		if _, there, err := device.Pods.HostEnd(gone.HostDevice); there || err != nil {
			t.Errorf("its device exists: %t, %v", there, err)
		}
		if _, there, err := device.Pods.HostEnd(stays.HostDevice); !there || err != nil {
			t.Errorf("the device of the other pod exists: %t, %v", there, err)
		}
		if files, err := os.ReadDir(filepath.Join(stateDir, "endpoints")); err != nil || len(files) != 1 {
			t.Errorf("files are %v: %v", files, err)
		}
		if !expiry.HasLeft(gone.Addresses) {
			t.Error("its connections are not flushed")
		}
		next, err := add("next", uidOfServer)
		if err != nil {
			return fmt.Errorf("a pod gets no address: %w", err)
		}
		if next.Addresses[0] != gone.Addresses[0] { // the range has no other one
			t.Errorf("the next pod has %v, want that of %v", next.Addresses, gone.Addresses)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
