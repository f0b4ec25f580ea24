package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// officePool gives every pod the same addresses of an IPPool, and records what it is asked. Only what these tests call is there.
type officePool struct {
	endpoint.IPPools
	calls  []string
	failed error // of Commit
}

var officeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8:7::100")}

func (p *officePool) call(what string, a agentapi.Attachment) {
	p.calls = append(p.calls, what+" "+a.ContainerID)
}

func (p *officePool) Allocate(_ context.Context, e *agentapi.AddRequest) error {
	if e.Pool != "" || e.Addresses != nil || e.StatefulSet != "" {
		return fmt.Errorf("the request decides: %+v", *e)
	}
	p.call("allocate", e.Attachment)
	e.Pool, e.Addresses = "office", officeAddresses
	return nil
}

func (p *officePool) Commit(a agentapi.Attachment) error {
	p.call("commit", a)
	return p.failed
}
func (p *officePool) Abandon(a agentapi.Attachment) { p.call("abandon", a) }
func (p *officePool) Release(a agentapi.Attachment) { p.call("release", a) }

// took compares the calls since the last time.
func (p *officePool) took(t *testing.T, step, want string) {
	t.Helper()
	if got := strings.Join(p.calls, ", "); got != want {
		t.Errorf("%s: the IPPool was asked: %s; want: %s", step, got, want)
	}
	p.calls = nil
}

// expectPool compares the routes and answers of the node with whether it has a pod of the pool.
func (a *adding) expectPool(step string, uplink int, has bool) {
	a.t.Helper()
	routes, err := a.datapath.Routes.All()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, addr := range officeAddresses {
		answers, err := neigh.HasProxy(uplink, addr)
		if err != nil {
			a.t.Fatal(err)
		}
		if local := routes[node.HostPrefix(addr)].Kind == fwd.RouteLocal; local != has || answers != has {
			a.t.Errorf("%s: %s is local: %t, the node answers for it: %t; want %t", step, addr, local, answers, has)
		}
	}
}

// Whatever happens to a pod of an IPPool, its addresses are released exactly when no route and no answer is left.
func TestAddOfIPPool(t *testing.T) {
	onAdding(t, node.RoutingEBPF, func(a *adding) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "up1"}
		if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
		uplink := netdev.Uplink{Name: link.Name, Index: link.Index, MAC: link.HardwareAddr}
		others := map[netip.Prefix]fwd.Route{netip.MustParsePrefix("192.0.2.1/32"): {Kind: fwd.RouteCluster}, netip.MustParsePrefix("2001:db8:7::1/128"): {Kind: fwd.RouteCluster}}
		if _, err := a.datapath.Routes.Sync(others); err != nil { // as after a reconciliation
			t.Fatal(err)
		}
		pool := &officePool{}
		a.endpoints.IPPools = pool
		of := *office
		a.endpoints.Update(endpoint.Node{
			MTU: 1500, PoolUplink: func(string) (netdev.Uplink, error) { return uplink, nil }, IPPool: func(string) *cluster.IPPool { return &of },
		})
		add := func(of agentapi.AddRequest) error {
			_, err := a.Add(t.Context(), of)
			return err
		}
		remove := func(of agentapi.AddRequest) {
			t.Helper()
			if err := a.Delete(t.Context(), agentapi.DeleteRequest{Attachment: of.Attachment}); err != nil {
				t.Error(err)
			}
		}

		of.VLAN = 7 // where the node could not resolve neighbours
		vlan := a.device("vlan")
		if err := add(vlan); err == nil || !strings.Contains(err.Error(), "up0 has no address in the subnet of 192.0.2.") {
			t.Errorf("routed, in a VLAN where the node has no address: %v", err)
		}
		a.expectPool("rejected", link.Index, false)
		pool.took(t, "rejected", "allocate vlan, release vlan, abandon vlan")
		of.VLAN = 0

		web := a.device("web")
		web.Pool, web.StatefulSet, web.Addresses = "forged", "forged", []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		if err := add(web); err != nil {
			t.Fatal(err)
		}
		a.expectPool("added", link.Index, true)
		pool.took(t, "added", "allocate web, commit web")

		if err := device.Pods.Delete(web.HostDevice); err != nil { // and made anew before the agent notices
			t.Fatal(err)
		}
		a.device("between") // another device may get the index
		web = a.device("web")
		if err := add(web); err != nil {
			t.Fatal(err)
		}
		a.expectPool("made anew", link.Index, true)
		pool.took(t, "made anew", "release web, allocate web, commit web")
		remove(web)
		a.expect("deleted", 0, 0)
		a.expectPool("deleted", link.Index, false)
		pool.took(t, "deleted", "release web")

		late := a.device("late")
		late.HostIfIndex++
		if err := add(late); err == nil {
			t.Error("an ADD whose device is gone succeeds")
		}
		a.expectPool("device is gone", link.Index, false)
		pool.took(t, "device is gone", "allocate late, abandon late")
		remove(late)
		pool.took(t, "deleted without an endpoint", "release late")

		pool.failed = errors.New("deleted within its ADD")
		again := a.device("again")
		if err := add(again); !errors.Is(err, pool.failed) {
			t.Errorf("a DEL within the ADD: %v", err)
		}
		a.expect("deleted within its ADD", 0, 0)
		a.expectPool("deleted within its ADD", link.Index, false)
		pool.took(t, "deleted within its ADD", "allocate again, commit again, release again, abandon again")
	})
}
