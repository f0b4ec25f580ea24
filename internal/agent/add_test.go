package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	agentflow "github.com/beeline-cni/beeline/internal/agent/flow"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// adding is an agent that has synced no policies, with one network namespace for the ends of its pods.
type adding struct {
	*Agent
	t    *testing.T
	pods ns.NetNS
}

// onAdding runs a test in a network namespace of its own, with an agent of this kind of routing.
func onAdding(t *testing.T, routing node.Routing, test func(a *adding)) {
	t.Helper()
	pods, bpffs := testenv.NewNetns(t), t.TempDir()
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(bpffs, 0); err != nil {
			t.Error(err)
		}
	})
	err := testenv.NewNetns(t).Do(func(ns.NetNS) error {
		config := Defaults()
		config.NodeName, config.Manifests, config.StateDir, config.BPFFS = "n1", t.TempDir(), t.TempDir(), filepath.Join(bpffs, "beeline")
		config.Routing, config.Services, config.Flows, config.Masquerade = routing, lb.ModeNone, agentflow.ModeOff, false
		made, err := newAgent(config, "test", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		a := &adding{made, t, pods}
		defer a.datapath.Close()
		if err := a.pool.SetPrefixes([]netip.Prefix{netip.MustParsePrefix("10.1.1.0/29"), netip.MustParsePrefix("fd00:1::/125")}); err != nil {
			return err
		}
		a.endpoints.Update(endpoint.Node{MTU: 1500})
		a.ipPools.Update(&cluster.Snapshot{})
		if !a.datapath.HaveTCX() {
			testenv.Missing(t, "programs are filters, which have no pinned links")
		}
		test(a)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// device makes the device of a container, as the plugin does.
func (a *adding) device(container string) agentapi.AddRequest {
	a.t.Helper()
	made, err := device.Pods.Create(device.PodSpec{Kind: device.Kind(testenv.DeviceKind()), ContainerID: container, IfName: container, Netns: a.pods.Path()})
	if err != nil {
		a.t.Fatal(err)
	}
	return agentapi.AddRequest{Endpoint: agentapi.Endpoint{
		Attachment: agentapi.Attachment{ContainerID: container, IfName: container}, HostDevice: made.HostName, HostIfIndex: made.HostIndex,
		HostMAC: made.HostMAC.String(), PodMAC: made.PodMAC.String(), Pod: agentapi.PodRef{Namespace: "shop", Name: container},
	}}
}

func (a *adding) pin(device, program string) string {
	return filepath.Join(a.config.BPFFS, "links", device+" "+program)
}

// expect compares what all pods have together with these numbers of pods, and of pinned programs.
func (a *adding) expect(step string, pods, programs int) {
	a.t.Helper()
	used := 0
	for _, u := range a.pool.Usage() {
		used += u.Used
	}
	table, tableErr := a.datapath.Endpoints.All()
	pins, pinsErr := a.datapath.Attachments()
	files, filesErr := os.ReadDir(filepath.Join(a.config.StateDir, "endpoints"))
	routes, routesErr := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: rtnl.Protocol}, netlink.RT_FILTER_PROTOCOL)
	if err := errors.Join(tableErr, pinsErr, filesErr, routesErr); err != nil {
		a.t.Fatal(err)
	}
	got := fmt.Sprintf("%d endpoints, %d addresses, %d table entries, %d files, %d routes, %d pins", a.endpoints.Count(), used, len(table), len(files), len(routes), len(pins))
	want := fmt.Sprintf("%d endpoints, %d addresses, %d table entries, %d files, %d routes, %d pins", pods, 2*pods, 2*pods, pods, 2*pods, programs)
	if got != want {
		a.t.Errorf("%s: %s; want %s", step, got, want)
	}
}

// expectState compares what CHECK says about a pod.
func (a *adding) expectState(step string, of agentapi.AddRequest, want string) {
	a.t.Helper()
	if e, err := a.Check(a.t.Context(), of.Attachment); err != nil || !strings.Contains(e.State, want) {
		a.t.Errorf("%s: %+v, %v; want state %q", step, e, err, want)
	}
}

// An ADD without one of the programs fails and leaves nothing, and the next one succeeds. CHECK reports a program that
// somebody else takes off, in both ways, and the agent attaches it again.
func TestAddAttachesAllOrNothing(t *testing.T) {
	for _, routing := range []node.Routing{node.RoutingEBPF, node.RoutingKernel} {
		for _, program := range []string{"from_pod", "to_pod"} {
			t.Run(string(routing)+" "+program, func(t *testing.T) {
				onAdding(t, routing, func(a *adding) {
					web := a.device("web")
					pin := a.pin(web.HostDevice, program)
					if err := os.Mkdir(pin, 0o700); err != nil { // so that no link can be pinned
						t.Fatal(err)
					}
					if _, err := a.Add(t.Context(), web); err == nil || !strings.Contains(err.Error(), program) {
						t.Errorf("ADD without %s: %v", program, err)
					}
					a.expect("failed", 0, 0)
					if err := device.Pods.Delete(web.HostDevice); err != nil { // as the plugin does
						t.Fatal(err)
					}
					web = a.device("web")
					if _, err := a.Add(t.Context(), web); err != nil {
						t.Fatal(err)
					}
					a.expect("added", 1, 2)
					a.expectState("added", web, agentapi.StateReady)
					for step, takeOff := range map[string]func(link.Link) error{
						"detached": link.Link.Detach, "unpinned": link.Link.Unpin,
					} {
						l, err := link.LoadPinnedLink(pin, nil)
						if err == nil {
							err = errors.Join(takeOff(l), l.Close())
						}
						if err != nil {
							t.Fatal(err)
						}
						a.expectState(step, web, program)
						a.endpoints.ForgetDetached()
						for until := time.Now().Add(10 * time.Second); a.endpoints.Attach() != nil && time.Now().Before(until); {
							time.Sleep(time.Millisecond) // the kernel releases an unpinned link in the background
						}
						a.expectState(step+", and attached again", web, agentapi.StateReady)
					}
					if err := a.Delete(t.Context(), agentapi.DeleteRequest{Attachment: web.Attachment}); err != nil {
						t.Error(err)
					}
					a.expect("deleted", 0, 0)
				})
			})
		}
	}
}

// takeOff detaches a program, as any privileged process can.
func (a *adding) takeOff(device, program string) {
	a.t.Helper()
	l, err := link.LoadPinnedLink(a.pin(device, program), nil)
	if err == nil {
		err = errors.Join(l.Detach(), l.Close())
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// programsOn gives the ids of the links at a device.
func (a *adding) programsOn(index int) (ids []link.ID) {
	a.t.Helper()
	for _, where := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: where})
		if err != nil {
			a.t.Fatal(err)
		}
		for _, p := range found.Programs {
			id, _ := p.LinkID()
			ids = append(ids, id)
		}
	}
	return ids
}

// A pod of an earlier agent that cannot get its programs is reported. It keeps neither the tables from being committed nor other
// devices from losing what they do not need any more.
func TestCommitWithoutProgramOfPod(t *testing.T) {
	onAdding(t, node.RoutingEBPF, func(a *adding) {
		former := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "former0"}, PeerName: "former1"}
		if err := netlink.LinkAdd(former); err != nil {
			t.Fatal(err)
		}
		if err := a.datapath.AttachUplink(former.Name, former.Index); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(a.pin(former.Name, "from_wire")); err != nil {
			t.Fatal(err)
		}
		web, db := a.device("web"), a.device("db")
		for _, pod := range []agentapi.AddRequest{web, db} {
			if _, err := a.Add(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		pin := a.pin(web.HostDevice, "from_pod")
		if err := errors.Join(os.Remove(pin), os.Mkdir(pin, 0o700)); err != nil { // so that no link can be pinned
			t.Fatal(err)
		}
		a.endpoints.ForgetDetached()
		if err := a.programs.Attach(a.endpoints, 0, 0); err == nil || !strings.Contains(err.Error(), "from_pod to "+web.HostDevice) {
			t.Errorf("attached without from_pod of a pod: %v", err)
		}
		if _, err := os.Readlink(filepath.Join(a.config.BPFFS, "maps", "committed")); err != nil {
			t.Errorf("one pod keeps the tables from being committed: %v", err)
		}
		if _, err := os.Stat(a.pin(former.Name, "from_wire")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("one pod keeps the programs of a former uplink attached: %v", err)
		}
		a.expectState("web", web, "from_pod")
		a.expectState("db", db, agentapi.StateReady)
	})
}
