package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// complete repeats a netlink dump that a change interrupted.
func complete[T any](list func() ([]T, error)) (all []T, err error) {
	const tries = 100
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}

// hostDevices lists the host devices of the node's pods.
func hostDevices(n *node) (names []string, err error) {
	err = n.Netlink(func(h *netlink.Handle) error {
		links, err := complete(h.LinkList)
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "bl") {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	return names, err
}

// routesProtocol is the protocol of Beeline's routes, see docs/architecture.md.
const routesProtocol = 190

// hostRoutes lists Beeline's routes to single addresses, which are those of local pods.
func hostRoutes(n *node) (to []string, err error) {
	routes, err := beelineRoutes(n)
	for _, r := range routes {
		if ones, bits := r.Dst.Mask.Size(); ones == bits {
			to = append(to, r.Dst.String())
		}
	}
	return to, err
}

func beelineRoutes(n *node) (routes []netlink.Route, err error) {
	err = n.Netlink(func(h *netlink.Handle) error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := complete(func() ([]netlink.Route, error) {
				return h.RouteListFiltered(family, &netlink.Route{Protocol: routesProtocol}, netlink.RT_FILTER_PROTOCOL)
			})
			if err != nil {
				return err
			}
			routes = append(routes, all...)
		}
		return nil
	})
	return routes, err
}

// traces lists everything that pods have on a node: devices, files, pins, routes, map entries, addresses. It needs a
// running agent.
func (c *cluster) traces(n *node) (found []string, err error) {
	note := func(kind string, names []string, err error) error {
		for _, name := range names {
			found = append(found, kind+" "+name)
		}
		return err
	}
	devices, err := hostDevices(n)
	if err := note("device", devices, err); err != nil {
		return nil, err
	}
	routes, err := hostRoutes(n)
	if err := note("route", routes, err); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(n.stateDir(), "endpoints", "*"))
	if err := note("file", files, err); err != nil {
		return nil, err
	}
	pins, err := filepath.Glob(filepath.Join(n.BPFFS, "links", "bl*"))
	if err := note("pin", pins, err); err != nil {
		return nil, err
	}
	status, err := n.api().Status(c.t.Context())
	if err != nil {
		return nil, err
	}
	if status.Endpoints > 0 {
		found = append(found, fmt.Sprintf("%d endpoints", status.Endpoints))
	}
	for _, m := range status.Maps {
		if (m.Name == "endpoints" || m.Name == "limits") && m.Entries > 0 {
			found = append(found, fmt.Sprintf("%d entries in map %s", m.Entries, m.Name))
		}
	}
	for _, p := range status.Pools {
		if p.Used > 0 {
			found = append(found, fmt.Sprintf("%d addresses of %s in use", p.Used, p.Prefix))
		}
	}
	return found, nil
}

// waitNoTraces waits until nothing of pods is left on the node.
func (c *cluster) waitNoTraces(n *node) {
	c.t.Helper()
	eventually(c.t, func() error {
		found, err := c.traces(n)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("left on %s: %s", n.Name, strings.Join(found, ", "))
		}
		return err
	})
}

// wantTraces fails the test unless the node has the traces of exactly these pods.
func (c *cluster) wantTraces(n *node, pods ...*testbed.Pod) {
	c.t.Helper()
	addresses := 0
	for _, p := range pods {
		addresses += len(p.Addresses)
	}
	devices, err := hostDevices(n)
	if err != nil {
		c.t.Fatal(err)
	}
	routes, err := hostRoutes(n)
	if err != nil {
		c.t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(n.stateDir(), "endpoints"))
	if err != nil {
		c.t.Fatal(err)
	}
	status := c.status(n)
	used := 0
	for _, p := range status.Pools {
		used += p.Used
	}
	got := []int{len(devices), len(files), status.Endpoints, len(routes), used, entries(status, "endpoints")}
	want := []int{len(pods), len(pods), len(pods), addresses, addresses, addresses}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("%s has %v devices, files, endpoints, routes, addresses, map entries; want %v", n.Name, got, want)
	}
}

// onlyEndpoints checks the agent's number of endpoints.
func (c *cluster) onlyEndpoints(n *node, count int) error {
	all, err := n.api().Endpoints(c.t.Context())
	if err == nil && len(all) != count {
		err = fmt.Errorf("%d endpoints, want %d: %+v", len(all), count, all)
	}
	return err
}

func (c *cluster) removeEndpointFiles(n *node) {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.stateDir(), "endpoints")); err != nil {
		c.t.Fatal(err)
	}
}

func entries(s *agentapi.Status, table string) int {
	for _, m := range s.Maps {
		if m.Name == table {
			return m.Entries
		}
	}
	return -1
}

// distinct fails the test when two of the pods have an address in common.
func (c *cluster) distinct(pods []*testbed.Pod) {
	c.t.Helper()
	holder := map[netip.Addr]string{}
	for _, p := range pods {
		for _, a := range p.Addresses {
			if other, taken := holder[a]; taken {
				c.t.Errorf("%s and %s both have %s", other, p.Name, a)
			}
			holder[a] = p.Name
		}
	}
}
