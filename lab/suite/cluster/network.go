package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Network is a route through the cluster's network: which pods are its ends, and by which address the client finds the
// server.
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

// onServer reports whether the pod belongs on the server's node rather than on the client's.
func (r role) onServer() bool { return r == podFar || r == nodeFar }

// hosted reports whether the pod is in the network of its node.
func (r role) hosted() bool { return r == nodeClient || r == nodeNear || r == nodeFar }

// serves reports whether the pod is a server.
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

func names(list []Network) (words []string) {
	for _, c := range list {
		words = append(words, c.Name)
	}
	return words
}

func selectNetworks(chosen []string) ([]Network, error) {
	known := names(All())
	for _, name := range chosen {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no network %q on a cluster; there are: %s", name, strings.Join(known, ", "))
		}
	}
	if len(chosen) == 0 {
		return All(), nil
	}
	return slices.DeleteFunc(All(), func(c Network) bool { return !slices.Contains(chosen, c.Name) }), nil
}

// Gate is for nodes with other work, which a cluster in use has: foreign load is what they do while the bench is quiet.
var Gate = round.Gate{Steal: 0.02, Foreign: 0.15, Retransmits: 0.01}

// cores is how many processes a full run has in parallel at most: each needs ports of its own, on Services too.
const cores = 4

// New decides what a run measures. API has to be set before the run.
func New(o round.Options, where Options) (*Suite, error) {
	s := newSuite(round.NewSchedule(o), where)
	s.Gate = Gate.With(o)
	var err error
	if s.networks, err = selectNetworks(o.Networks); err != nil {
		return nil, err
	}
	placements := round.OrDefault(o.Placements, result.Free)
	if len(placements) > 1 || placements[0] != result.Free && placements[0] != result.OneCore {
		return nil, fmt.Errorf("placement %v: on a cluster it is %s, or %s where both nodes run on one kernel", placements, result.Free, result.OneCore)
	}
	for _, c := range round.Cells(o) {
		c.Placements = placements
		if err := s.Add(c, cores); err != nil {
			return nil, err
		}
	}
	s.ports = newPorts(s.Cells)
	return s, nil
}

// Names are those of the networks.
func (s *Suite) Names() []string { return names(s.networks) }

// paths are those that the cells need.
func (s *Suite) paths() (list []result.Path) {
	for _, c := range s.Cells {
		list = add(list, c.Path)
	}
	return list
}

// add adds to a list what it does not have.
func add[T comparable](list []T, one T) []T {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

// oneCore reports whether both ends are to be on one CPU.
func (s *Suite) oneCore() bool {
	return slices.ContainsFunc(s.Cells, func(c round.Cell) bool { return c.Placement == result.OneCore })
}

// roles are the pods that the networks and cells need.
func (s *Suite) roles() (list []role) {
	for _, c := range s.networks {
		list = add(list, c.client)
		for _, path := range s.paths() {
			list = add(list, c.servers[path])
		}
	}
	return list
}

// rolesWithService are the pods that need a Service before them.
func (s *Suite) rolesWithService() (list []role) {
	for _, c := range s.networks {
		for _, path := range s.paths() {
			if c.address != ownAddress {
				list = add(list, c.servers[path])
			}
		}
	}
	return list
}
