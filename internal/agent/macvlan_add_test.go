package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// macvlanPool is an officePool whose pods have macvlan devices.
type macvlanPool struct{ *officePool }

func (macvlanPool) Device(context.Context, agentapi.PrepareRequest) (poddevice.Pod, error) {
	return poddevice.Pod{Pool: "office", OfPool: device.Macvlan}, nil
}

func (macvlanPool) Adopt(agentapi.Endpoint) {}

// office is the pool as the cluster knows it: IPv6 has no gateway.
var office = &cluster.IPPool{
	Name: "office", Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:7::/64")},
	Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	Routes:   []cluster.IPPoolRoute{{To: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("192.0.2.2")}},
}

// macvlanDevice makes the device of a container on a parent, as the plugin does.
func (a *adding) macvlanDevice(container string, parent int) agentapi.AddRequest {
	a.t.Helper()
	spec := device.PodSpec{Kind: device.Macvlan, ContainerID: container, IfName: container, Netns: a.pods.Path(), Parent: parent}
	made, err := device.Pods.Create(spec)
	if err != nil {
		a.t.Fatal(err)
	}
	return agentapi.AddRequest{Endpoint: agentapi.Endpoint{
		Attachment: agentapi.Attachment{ContainerID: container, IfName: container}, HostDevice: made.HostName, HostIfIndex: made.HostIndex, Netns: a.pods.Path(),
		HostMAC: made.HostMAC.String(), PodMAC: made.PodMAC.String(), Pod: agentapi.PodRef{Namespace: "shop", Name: container},
		Macvlan: &agentapi.Macvlan{Parent: parent, NetnsCookie: made.NetnsCookie},
	}}
}

// expectMacvlans compares the pods in the datapath's table of macvlan devices.
func (a *adding) expectMacvlans(step string, want ...agentapi.AddRequest) {
	a.t.Helper()
	all, err := a.datapath.Macvlans.All()
	if err != nil {
		a.t.Fatal(err)
	}
	if len(all) != len(want) {
		a.t.Errorf("%s: the table is %+v, want %d entries", step, all, len(want))
	}
	cookie, err := sock.NetnsCookieAt(a.pods.Path())
	if err != nil {
		a.t.Fatal(err)
	}
	for _, w := range want {
		w.Addresses = officeAddresses
		key, entry := node.MacvlanEntry(w.Endpoint)
		if got := all[key]; got != entry || got.Netns != cookie || got.IPv4 != officeAddresses[0] || got.IPv6 != officeAddresses[1] {
			a.t.Errorf("%s: the entry is %+v, want %+v with cookie %d", step, got, entry, cookie)
		}
	}
}

// A macvlan device is made after its parent has its programs, is in the datapath's tables exactly as long as the endpoint, and gets its
// mode back; the node does not answer for its addresses.
func TestAddMacvlan(t *testing.T) {
	onAdding(t, node.RoutingEBPF, func(a *adding) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", MTU: 1400, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "up1"}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link), netlink.LinkAdd(bridge)); err != nil {
			t.Fatal(err)
		}
		pool := macvlanPool{&officePool{}}
		a.endpoints.IPPools = pool
		on := func(l *netlink.LinkAttrs) {
			a.endpoints.Update(endpoint.Node{
				MTU: 1500, IPPool: func(string) *cluster.IPPool { return office },
				PoolUplink: func(string) (netdev.Uplink, error) {
					return netdev.Uplink{Name: l.Name, Index: l.Index, MAC: l.HardwareAddr, MTU: 1400}, nil
				},
			})
		}
		prepare := agentapi.PrepareRequest{Attachment: agentapi.Attachment{ContainerID: "web", IfName: "web"}}

		on(bridge.Attrs())
		if _, err := a.Prepare(t.Context(), prepare); !agentapi.HasCode(err, agentapi.CodeNoDevice) || !strings.Contains(err.Error(), "IPPool office: device br0 cannot carry macvlan devices of pods: it is a bridge") {
			t.Errorf("a bridge as parent: %v", err)
		}
		on(link.Attrs())
		prepared, err := a.Prepare(t.Context(), prepare)
		if err != nil || prepared.Device != "macvlan" || prepared.Parent != link.Index {
			t.Fatalf("prepared %+v, %v", prepared, err)
		}
		pins, err := a.datapath.Attachments()
		for _, program := range []string{"from_macvlan", "to_macvlan"} {
			if err != nil || !slices.Contains(pins, attach.Attachment{Device: "up0", Program: program}) {
				t.Errorf("before the device is made, up0 has %v, %v: no %s", pins, err, program)
			}
		}

		web := a.macvlanDevice("web", prepared.Parent)
		added, err := a.Add(t.Context(), web)
		if err != nil {
			t.Fatal(err)
		}
		routes := []agentapi.PodRoute{
			{To: netip.MustParsePrefix("192.0.2.0/24")}, {To: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("192.0.2.2")},
			{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1")}, {To: netip.MustParsePrefix("2001:db8:7::/64")},
		}
		if added.Device != "macvlan" || added.MTU != 1400 || !slices.Equal(added.Macvlan.Routes, routes) {
			t.Errorf("the endpoint is %+v with %+v", added, added.Macvlan)
		}
		a.expectMacvlans("added", web)
		for _, addr := range officeAddresses {
			if answers, err := neigh.HasProxy(link.Index, addr); answers || err != nil {
				t.Errorf("the node answers for %s: %t, %v", addr, answers, err)
			}
		}
		a.expectState("added", web, agentapi.StateReady)

		err = a.pods.Do(func(ns.NetNS) error {
			pod, err := netlink.LinkByName("web")
			if err != nil {
				return err
			}
			other := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "web", Index: pod.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
			return errors.Join(netlink.LinkModify(other), netlink.LinkSetHardwareAddr(pod, net.HardwareAddr{2, 9, 9, 9, 9, 9}))
		})
		if err != nil {
			t.Fatal(err)
		}
		a.endpoints.RepairMacvlans()
		if found, err := macvlan.Find(a.pods, "web"); err != nil || found.Mode != "vepa" || found.MAC.String() != web.PodMAC {
			t.Errorf("the pod's changes remain: %+v, %v", found, err)
		}

		if err := os.Remove(filepath.Join(a.config.StateDir, "endpoints", web.HostDevice+".json")); err != nil {
			t.Fatal(err)
		}
		options := a.endpointOptions()
		options.IPPools = pool
		a.pool.Release(web.HostDevice)
		recovered, err := endpoint.New(options, endpoint.Node{})
		if err != nil {
			t.Fatal(err)
		}
		for p := range recovered.All() {
			if p.Device != "macvlan" || p.Macvlan == nil || p.Macvlan.Parent != link.Index || p.Macvlan.NetnsCookie != web.Macvlan.NetnsCookie {
				t.Errorf("without its file the endpoint is %+v with %+v", p, p.Macvlan)
			}
		}
		if recovered.Count() != 1 || !recovered.Parents()[link.Index] {
			t.Errorf("without its file there are %d endpoints on %v", recovered.Count(), recovered.Parents())
		}

		if err := a.Delete(t.Context(), agentapi.DeleteRequest{Attachment: web.Attachment}); err != nil {
			t.Error(err)
		}
		a.expectMacvlans("deleted")
		if found, err := macvlan.Find(a.pods, "web"); err == nil {
			t.Errorf("the pod still has %+v", found)
		}

		elsewhere := a.macvlanDevice("elsewhere", link.Index)
		on(bridge.Attrs())
		if _, err := a.Add(t.Context(), elsewhere); !agentapi.HasCode(err, agentapi.CodeConflict) || !strings.Contains(err.Error(), "not the uplink of IPPool office (any more)") {
			t.Errorf("a device on another uplink: %v", err)
		}
		a.expectMacvlans("on another uplink")
	})
}

// manyPool gives each pod an address of its own. Pods whose name begins with "net" have an address of the cluster.
type manyPool struct {
	officePool
	mu   sync.Mutex
	last netip.Addr
}

func (*manyPool) Device(_ context.Context, req agentapi.PrepareRequest) (poddevice.Pod, error) {
	if strings.HasPrefix(req.ContainerID, "net") {
		return poddevice.Pod{}, nil
	}
	return poddevice.Pod{Pool: "office", OfPool: device.Macvlan}, nil
}

func (p *manyPool) Allocate(_ context.Context, e *agentapi.AddRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(e.ContainerID, "net") {
		return nil
	}
	p.last = p.last.Next()
	e.Pool, e.Addresses = "office", []netip.Addr{p.last}
	return nil
}

func (*manyPool) Commit(agentapi.Attachment) error { return nil }
func (*manyPool) Abandon(agentapi.Attachment)      {}
func (*manyPool) Release(agentapi.Attachment)      {}

func prepareOf(container string) agentapi.PrepareRequest {
	return agentapi.PrepareRequest{Attachment: agentapi.Attachment{ContainerID: container, IfName: container}}
}

// atOnce calls do for each container at the same time, in this network namespace, and returns the function that waits for the errors.
func atOnce(containers []string, do func(container string) error) (wait func() error) {
	here, err := ns.GetCurrentNS()
	ended := make(chan error, len(containers))
	for _, c := range containers {
		go func() {
			if err != nil {
				ended <- err
				return
			}
			ended <- here.Do(func(ns.NetNS) error { return do(c) })
		}()
	}
	return func() (err error) {
		for range containers {
			err = errors.Join(err, <-ended)
		}
		return errors.Join(err, here.Close())
	}
}

// While the verifier checks the programs for the first two pods with macvlan devices on a node, other pods are added. Then both have theirs.
func TestFirstMacvlansAtOnce(t *testing.T) {
	onMacvlan(t, func(a *adding, parent net.Interface) {
		a.endpoints.IPPools = &manyPool{last: officeAddresses[0]}
		load, verifying, verified := a.endpoints.LoadParent, make(chan bool), make(chan bool)
		a.endpoints.LoadParent = func() error {
			verifying <- true
			<-verified
			return load()
		}
		containers := []string{"web", "db"}
		prepared := atOnce(containers, func(c string) error {
			got, err := a.Prepare(t.Context(), prepareOf(c))
			if err == nil && (got.Device != "macvlan" || got.Parent != parent.Index) {
				err = fmt.Errorf("prepared %+v", got)
			}
			return err
		})
		<-verifying
		<-verifying
		if got, err := a.Prepare(t.Context(), prepareOf("net1")); err != nil || got.Device == "macvlan" {
			t.Errorf("prepared %+v, %v", got, err)
		}
		if _, err := a.Add(t.Context(), a.device("net1")); err != nil {
			t.Error(err)
		}
		close(verified)
		if err := prepared(); err != nil {
			t.Fatal(err)
		}
		if err := a.datapath.CheckMacvlan(parent.Name, parent.Index); err != nil {
			t.Error(err)
		}

		devices := map[string]agentapi.AddRequest{}
		for _, c := range containers {
			devices[c] = a.macvlanDevice(c, parent.Index)
		}
		added := atOnce(containers, func(c string) error {
			_, err := a.Add(t.Context(), devices[c])
			return err
		})
		if err := added(); err != nil {
			t.Fatal(err)
		}
		table, err := a.datapath.Macvlans.All()
		if err != nil || len(table) != 2 {
			t.Errorf("the table is %+v, %v", table, err)
		}
		for _, c := range containers {
			a.expectState("added at once", devices[c], agentapi.StateReady)
		}
	})
}

// Where one of the two programs is not attached or not loaded, no macvlan device is prepared, and other pods are added. A pod of an earlier
// agent is closed, and everything else is committed. The next request tries again.
func TestMacvlanProgramMissing(t *testing.T) {
	for _, program := range []string{"from_macvlan", "to_macvlan"} {
		t.Run(program, func(t *testing.T) {
			onMacvlan(t, func(a *adding, parent net.Interface) {
				a.endpoints.IPPools = &manyPool{last: officeAddresses[0]}
				rejected := errors.New("load " + program + ": the verifier rejects it")
				load := a.endpoints.LoadParent
				a.endpoints.LoadParent = func() error { return rejected }
				if _, err := a.Prepare(t.Context(), prepareOf("web")); !errors.Is(err, rejected) {
					t.Errorf("rejected, and prepared: %v", err)
				}
				if on := a.programsOn(parent.Index); len(on) > 0 {
					t.Errorf("one of two programs is attached: %v", on)
				}
				a.endpoints.LoadParent = load

				pin := a.pin(parent.Name, program)
				if err := os.Mkdir(pin, 0o700); err != nil { // so that no link can be pinned
					t.Fatal(err)
				}
				if _, err := a.Prepare(t.Context(), prepareOf("web")); err == nil || !strings.Contains(err.Error(), "attach "+program+" to up0") {
					t.Errorf("one program is missing, and prepared: %v", err)
				}
				if _, err := a.Add(t.Context(), a.macvlanDevice("early", parent.Index)); err == nil || !strings.Contains(err.Error(), "attach "+program+" to up0") {
					t.Errorf("one program is missing, and added: %v", err)
				}
				if all, err := a.datapath.Macvlans.All(); err != nil || len(all) > 0 {
					t.Errorf("the table is %+v, %v", all, err)
				}
				if _, err := a.Add(t.Context(), a.device("net1")); err != nil {
					t.Error(err)
				}
				if err := os.Remove(pin); err != nil {
					t.Fatal(err)
				}
				if _, err := a.Prepare(t.Context(), prepareOf("web")); err != nil {
					t.Fatal(err)
				}
				a.addMacvlan("web", parent.Index)

				restore := a.breakPin(parent.Name, program)
				if err := a.programs.Attach(a.endpoints, 0, 0); !errors.Is(err, attach.ErrMacvlan) {
					t.Errorf("attached without %s: %v", program, err)
				}
				if _, err := os.Readlink(filepath.Join(a.config.BPFFS, "maps", "committed")); err != nil {
					t.Errorf("pods with macvlan devices keep the tables from being committed: %v", err)
				}
				a.endpoints.CloseMacvlans(a.programs.RestoreParents())
				if a.hasCarrier("web") {
					t.Error("a pod is open without the programs of its parent")
				}
				restore()
				if err := a.programs.Attach(a.endpoints, 0, 0); err != nil {
					t.Error(err)
				}
				a.endpoints.CloseMacvlans(a.programs.RestoreParents())
				if !a.hasCarrier("web") {
					t.Error("a pod is closed with all programs")
				}
			})
		})
	}
}
