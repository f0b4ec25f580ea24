package agent

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// onMacvlan runs a test with an agent whose pods have macvlan devices on up0.
func onMacvlan(t *testing.T, test func(a *adding, parent net.Interface)) {
	onAdding(t, node.RoutingEBPF, func(a *adding) {
		up := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", MTU: 1400, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "up1"}
		if err := errors.Join(netlink.LinkAdd(up), netlink.LinkSetUp(up), netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "up1"}})); err != nil {
			t.Fatal(err)
		}
		a.endpoints.IPPools = macvlanPool{&officePool{}}
		uplink := netdev.Uplink{Name: "up0", Index: up.Index, MAC: up.HardwareAddr, MTU: 1400}
		a.programs.Update([]netdev.Uplink{uplink})
		a.endpoints.Update(endpoint.Node{
			MTU: 1500, IPPool: func(string) *cluster.IPPool { return office }, PoolUplink: func(string) (netdev.Uplink, error) { return uplink, nil },
		})
		test(a, net.Interface{Name: "up0", Index: up.Index})
	})
}

// addMacvlan adds a pod and sets its device up.
func (a *adding) addMacvlan(container string, parent int) agentapi.AddRequest {
	a.t.Helper()
	pod := a.macvlanDevice(container, parent)
	if _, err := a.Add(a.t.Context(), pod); err != nil {
		a.t.Fatal(err)
	}
	return pod
}

// inPod runs do in the namespace of the pods.
func (a *adding) inPod(do func() error) {
	a.t.Helper()
	if err := a.pods.Do(func(ns.NetNS) error { return do() }); err != nil {
		a.t.Fatal(err)
	}
}

// hasCarrier reports whether a device of the pods can send.
func (a *adding) hasCarrier(name string) (has bool) {
	a.t.Helper()
	a.inPod(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
			err = netlink.LinkSetUp(l)
			l, _ = netlink.LinkByName(name)
		}
		has = err == nil && l.Attrs().RawFlags&0x10000 != 0 // IFF_LOWER_UP
		return err
	})
	return has
}

// The programs of a parent that somebody has detached are attached again within one check, and before another pod is added. Where that
// fails, the pods are closed until they are there.
func TestMacvlanParentLosesPrograms(t *testing.T) {
	for _, program := range []string{"from_macvlan", "to_macvlan"} {
		t.Run(program, func(t *testing.T) {
			onMacvlan(t, func(a *adding, parent net.Interface) {
				if lost := a.programs.RestoreParents(); len(lost) > 0 {
					t.Errorf("before the first Attach: %v", lost)
				}
				old := a.addMacvlan("old", parent.Index)
				if err := a.programs.Attach(a.endpoints, 0, 0); err != nil {
					t.Fatal(err)
				}
				attached := func(step string) {
					t.Helper()
					if err := a.datapath.CheckMacvlan(parent.Name, parent.Index); err != nil {
						t.Errorf("%s: %v", step, err)
					}
				}
				attached("added")

				a.takeOff(parent.Name, program)
				if _, err := a.Prepare(t.Context(), agentapi.PrepareRequest{Attachment: agentapi.Attachment{ContainerID: "web", IfName: "web"}}); err != nil {
					t.Error(err)
				}
				attached("prepared")

				if err := a.Delete(t.Context(), agentapi.DeleteRequest{Attachment: old.Attachment}); err != nil {
					t.Error(err)
				}
				a.takeOff(parent.Name, program)
				a.addMacvlan("web", parent.Index)
				attached("another pod is added")

				a.takeOff(parent.Name, program)
				if lost := a.programs.RestoreParents(); len(lost) > 0 {
					t.Errorf("lost: %v", lost)
				}
				attached("checked")

				a.endpoints.CloseMacvlans(nil)
				if !a.hasCarrier("web") {
					t.Fatal("no carrier")
				}
				// Another process has taken the hook: a link can be pinned nowhere.
				restore := a.breakPin(parent.Name, program)
				lost := a.programs.RestoreParents()
				if lost[parent.Index] == nil {
					t.Fatalf("lost: %v", lost)
				}
				a.endpoints.CloseMacvlans(lost)
				if a.hasCarrier("web") {
					t.Error("a pod is open without the programs of its parent")
				}
				a.endpoints.CloseMacvlans(a.programs.RestoreParents())
				if a.hasCarrier("web") {
					t.Error("the pod is open again")
				}
				restore()
				if lost := a.programs.RestoreParents(); len(lost) > 0 {
					t.Errorf("lost: %v", lost)
				}
				a.readAgain(func(*agentapi.Endpoint) {}) // the next agent opens what this one has closed
				a.endpoints.CloseMacvlans(nil)
				if !a.hasCarrier("web") {
					t.Error("a pod is closed with all programs")
				}
			})
		})
	}
}

// breakPin detaches a program and keeps it from being attached until the returned function is called.
func (a *adding) breakPin(device, program string) (restore func()) {
	a.t.Helper()
	a.takeOff(device, program)
	pin := a.pin(device, program)
	if err := errors.Join(os.Remove(pin), os.Mkdir(pin, 0o700)); err != nil {
		a.t.Fatal(err)
	}
	return func() {
		a.t.Helper()
		if err := os.Remove(pin); err != nil {
			a.t.Fatal(err)
		}
	}
}

// A pod with NET_ADMIN deletes its end of the pair, and the host end with it. Its macvlan device goes with the endpoint, also under another
// name; one that the agent cannot find meets the programs of the parent, of later agents too.
func TestMacvlanOfForgottenPod(t *testing.T) {
	onMacvlan(t, func(a *adding, parent net.Interface) {
		forget := func(pod agentapi.AddRequest) {
			t.Helper()
			a.inPod(func() error {
				return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: pod.HostDevice}})
			})
			if gone, err := a.endpoints.DropGone(); gone != 1 || err != nil {
				t.Errorf("%d endpoints are gone, %v", gone, err)
			}
			a.expectMacvlans("forgotten")
		}
		web := a.addMacvlan("web", parent.Index)
		a.inPod(func() error {
			l, err := netlink.LinkByName("web")
			return errors.Join(err, netlink.LinkSetName(l, "hidden"))
		})
		forget(web)
		if all, err := macvlan.List(a.pods); err != nil || len(all) != 0 {
			t.Errorf("the pod has %+v, %v", all, err)
		}

		db := a.addMacvlan("db", parent.Index)
		a.inPod(func() error {
			l, err := netlink.LinkByName("db")
			return errors.Join(err, netlink.LinkSetHardwareAddr(l, macvlan.NewMAC()))
		})
		forget(db)
		if all, err := macvlan.List(a.pods); err != nil || len(all) != 1 {
			t.Errorf("the pod has %+v, %v", all, err)
		}
		next := programs.New(programs.Options{Datapath: a.datapath.Attacher, Commit: a.datapath.Commit, Log: a.log})
		for name, uplinks := range map[string][]netdev.Uplink{"an uplink": {{Name: parent.Name, Index: parent.Index}}, "no uplink any more": nil} {
			next.Update(uplinks)
			if err := next.Attach(a.endpoints, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := a.datapath.CheckMacvlan(parent.Name, parent.Index); err != nil {
				t.Errorf("the parent is %s, and the device in the pod is open: %v", name, err)
			}
		}
	})
}

// Another pod's namespace has the path of an endpoint's meanwhile. Its device of the same name stays as it is.
func TestMacvlanOfAnotherNamespace(t *testing.T) {
	onMacvlan(t, func(a *adding, parent net.Interface) {
		web := a.addMacvlan("web", parent.Index)
		another := testenv.NewNetns(t)
		spec := macvlan.Spec{Parent: parent.Index, Name: "web", MAC: macvlan.NewMAC()}
		if _, err := macvlan.Create(another, spec); err != nil {
			t.Fatal(err)
		}
		a.readAgain(func(p *agentapi.Endpoint) { p.Netns = another.Path() })
		a.endpoints.RepairMacvlans()
		a.endpoints.CloseMacvlans(map[int]error{parent.Index: errors.New("for the test")})
		if err := a.Delete(t.Context(), agentapi.DeleteRequest{Attachment: web.Attachment}); err != nil {
			t.Error(err)
		}
		if found, err := macvlan.Find(another, "web"); err != nil || found.Check(spec) != nil {
			t.Errorf("the other pod has %+v, %v", found, err)
		}
		if found, err := macvlan.Find(a.pods, "web"); !rtnl.IsNotFound(err) {
			t.Errorf("the pod has %+v, %v", found, err)
		}
	})
}

// An uplink that gets another name keeps its programs, and pods.
func TestMacvlanParentRenamed(t *testing.T) {
	onMacvlan(t, func(a *adding, parent net.Interface) {
		a.addMacvlan("web", parent.Index)
		if err := a.programs.Attach(a.endpoints, 0, 0); err != nil {
			t.Fatal(err)
		}
		before := a.programsOn(parent.Index)
		l := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "up0", Index: parent.Index}}
		if err := errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "wan0"), netlink.LinkSetUp(l)); err != nil {
			t.Fatal(err)
		}
		if lost := a.programs.RestoreParents(); len(lost) > 0 {
			t.Errorf("lost: %v", lost)
		}
		a.programs.Update([]netdev.Uplink{{Name: "wan0", Index: parent.Index, MTU: 1400}})
		if err := a.programs.Attach(a.endpoints, 0, 0); err != nil {
			t.Error(err)
		}
		if err := a.datapath.CheckParent("wan0", parent.Index); err != nil {
			t.Error(err)
		}
		if now := a.programsOn(parent.Index); !slices.Equal(now, before) {
			t.Errorf("links %v, before %v", now, before)
		}
		pins, err := a.datapath.Attachments()
		if err != nil || slices.ContainsFunc(pins, func(p attach.Attachment) bool { return p.Device == "up0" }) {
			t.Errorf("pins %v, %v", pins, err)
		}
	})
}

// readAgain makes another agent of this one, which reads the files of endpoints after change.
func (a *adding) readAgain(change func(p *agentapi.Endpoint)) {
	a.t.Helper()
	options := a.endpointOptions()
	options.IPPools = a.endpoints.IPPools
	for p := range a.endpoints.All() {
		a.pool.Release(p.HostDevice)
		change(&p)
		data, err := json.Marshal(p)
		if err == nil {
			err = os.WriteFile(filepath.Join(a.config.StateDir, "endpoints", p.HostDevice+".json"), data, 0o600)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	next, err := endpoint.New(options, endpoint.Node{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.endpoints = next
}
