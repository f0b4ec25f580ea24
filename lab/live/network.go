package live

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/measure"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Network is a way through the cluster's network: which pods are its ends, and by which address the client finds
// the server.
type Network struct {
	Name, Description string
	client            role
	servers           map[result.Path]role
	// address is the one of a server: its own, its Service's, or its node's.
	address addressKind
}

type addressKind int

const (
	ownAddress addressKind = iota
	clusterAddress
	nodeAddress
)

// role names a pod of the bench, and is a part of its name.
type role string

// The pods: ends in pods, and ends in the network of their node.
const (
	podClient  role = "client"
	podNear    role = "near"
	podFar     role = "far"
	nodeClient role = "node-client"
	nodeNear   role = "node-near"
	nodeFar    role = "node-far"
)

// onServer says whether the pod belongs on the server's node rather than on the client's.
func (r role) onServer() bool { return r == podFar || r == nodeFar }

// hosted says whether the pod is in the network of its node.
func (r role) hosted() bool { return r == nodeClient || r == nodeNear || r == nodeFar }

// serves says whether the pod is a server.
func (r role) serves() bool { return r != podClient && r != nodeClient }

var (
	podServers  = map[result.Path]role{result.SameNode: podNear, result.CrossNode: podFar}
	nodeServers = map[result.Path]role{result.SameNode: nodeNear, result.CrossNode: nodeFar}
)

// All are the networks on every cluster, the baseline first.
func All() []Network {
	return []Network{
		{stats.Baseline, "from node to node, by pods in the network of their nodes: the baseline", nodeClient, nodeServers, ownAddress},
		{"pod", "from pod to pod, by the pod's address", podClient, podServers, ownAddress},
		{"service", "from pod to pod, by a ClusterIP with one endpoint", podClient, podServers, clusterAddress},
		{"nodeport", "from node to pod, by a NodePort at the address of the pod's node: as a client outside of the cluster comes in", nodeClient, podServers, nodeAddress},
	}
}

func names(list []Network) string {
	var words []string
	for _, c := range list {
		words = append(words, c.Name)
	}
	return strings.Join(words, ", ")
}

func selectNetworks(chosen []string) ([]Network, error) {
	if len(chosen) == 0 {
		return All(), nil
	}
	var list []Network
	for _, c := range All() {
		if slices.Contains(chosen, c.Name) {
			list = append(list, c)
		}
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(list, func(c Network) bool { return c.Name == name }) {
			return nil, fmt.Errorf("no network %q on a cluster; there are: %s", name, names(All()))
		}
	}
	return list, nil
}

// Gate is for nodes with other work, which a cluster in use has: foreign load is what they do while the bench is quiet.
var Gate = measure.Gate{Steal: 0.02, Foreign: 0.15, Retransmits: 0.01}

// cores is how many processes a full run has in parallel at most: each needs ports of its own, on Services too.
const cores = 4

// Quick is the plan of a few minutes.
func Quick(c measure.Choice) (Plan, error) {
	return plan(c, measure.QuickSchedule(c), measure.QuickCells(c))
}

// Full is the plan of everything.
func Full(c measure.Choice) (Plan, error) {
	return plan(c, measure.FullSchedule(c), measure.FullCells(c))
}

func plan(c measure.Choice, schedule measure.Schedule, choices []measure.Choice) (p Plan, err error) {
	p = Plan{Schedule: schedule, Options: Options{Image: DefaultImage, HostPorts: DefaultHostPorts}}
	p.Gate = Gate
	if p.Networks, err = selectNetworks(c.Networks); err != nil {
		return p, err
	}
	if len(c.Placements) == 0 {
		c.Placements = []result.Placement{result.Free}
	}
	if len(c.Placements) > 1 || c.Placements[0] != result.Free && c.Placements[0] != result.OneCore {
		return p, fmt.Errorf("placement %v: on a cluster it is %s, or %s where both nodes run on one kernel", c.Placements, result.Free, result.OneCore)
	}
	for _, choice := range choices {
		choice.Placements = c.Placements
		if err := p.Add(choice, cores); err != nil {
			return p, err
		}
	}
	return p, nil
}

// paths are those that the cells need.
func (p Plan) paths() []result.Path {
	var list []result.Path
	for _, c := range p.Cells {
		if !slices.Contains(list, c.Path) {
			list = append(list, c.Path)
		}
	}
	return list
}

// oneCore says whether both ends are to be on one CPU.
func (p Plan) oneCore() bool {
	return slices.ContainsFunc(p.Cells, func(c measure.Cell) bool { return c.Placement == result.OneCore })
}

// HasBaseline says whether there is what ratios are formed with.
func (p Plan) HasBaseline() bool {
	return slices.ContainsFunc(p.Networks, func(c Network) bool { return c.Name == stats.Baseline })
}

// roles are the pods that the networks and cells need.
func (p Plan) roles() []role {
	var list []role
	add := func(r role) {
		if !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	for _, c := range p.Networks {
		add(c.client)
		for _, path := range p.paths() {
			add(c.servers[path])
		}
	}
	return list
}

// services are the pods that need a Service before them.
func (p Plan) services() []role {
	var list []role
	for _, c := range p.Networks {
		for _, path := range p.paths() {
			if r := c.servers[path]; c.address != ownAddress && !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	return list
}
