package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/reconcile"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Ready is nil when ADD can succeed. It takes no lock: the caller may be a probe during a long reconciliation.
func (a *Agent) Ready(context.Context) error {
	if err := a.reconciler.Ready(); err != nil {
		return agentapi.Errorf(agentapi.CodeNotReady, "node %s is not ready: %v", a.config.NodeName, err)
	}
	return nil
}

// Status gives the state of the node's network.
func (a *Agent) Status(context.Context) (*agentapi.Status, error) {
	s := a.nodeStatus()
	s.Translation, s.Annotations = a.translation(), a.annotations()
	if err := a.withTraffic(s.Nodes, a.tunnels()); err != nil {
		s.Problems = append(s.Problems, fmt.Sprintf("what was encrypted to other nodes is unknown: %v", err))
	}
	if err := a.addPrograms(s); err != nil {
		return nil, err
	}
	maps, err := a.maps()
	if err != nil {
		return nil, err
	}
	s.Maps = apiMaps(maps)
	return s, nil
}

// nodeStatus is the agent's own state.
func (a *Agent) nodeStatus() *agentapi.Status {
	s, problems := a.lockedStatus()
	s.Problems = problems.listed()
	return s
}

// lockedStatus is the part that needs the agent's lock, with the inputs of its problems.
func (a *Agent) lockedStatus() (*agentapi.Status, problemSources) {
	a.mu.Lock()
	defer a.mu.Unlock()
	node := a.reconciler.Status()
	s := &agentapi.Status{
		Version:   a.version,
		Node:      a.config.NodeName,
		Kernel:    kernelRelease(),
		PID:       os.Getpid(),
		Started:   a.started.UTC().Format(time.RFC3339),
		Ready:     node.NotReady == nil,
		Choices:   a.choices(node),
		Cluster:   source.Describe(a.source, a.config.Manifests, node.Snapshot),
		Features:  a.features,
		Nodes:     slices.Clone(node.Desired.Nodes),
		Endpoints: a.endpoints.Count(),
		Policy:    a.policyStatus(node.Snapshot),
	}
	for _, u := range node.Uplinks {
		s.Uplinks = append(s.Uplinks, agentapi.Uplink{Name: u.Name, MAC: u.MAC.String(), MTU: u.MTU, Addresses: u.Addresses})
	}
	for _, u := range a.pool.Usage() {
		s.Pools = append(s.Pools, agentapi.Pool{Prefix: u.Prefix, Used: u.Used, Free: u.Free})
	}
	return s, a.problemSources(node)
}

// addPrograms reads programs from the kernel. It does so without the agent's lock.
func (a *Agent) addPrograms(s *agentapi.Status) error {
	programs, err := a.datapath.Programs()
	if err != nil {
		return err
	}
	attachments, err := a.datapath.Attachments()
	if err != nil {
		return err
	}
	on := map[string]int{}
	for _, at := range attachments {
		on[at.Program]++
	}
	sockets, err := a.datapath.SocketPrograms()
	if err != nil {
		return err
	}
	for _, program := range sockets {
		on[program]++
	}
	for _, p := range programs {
		s.Programs = append(s.Programs, agentapi.Program{
			Name: p.Name, ID: p.ID, Tag: p.Tag, Attached: on[p.Name],
			RunCount: p.RunCount, RunTime: p.RunTime, Instructions: p.Instructions,
		})
	}
	return nil
}

func apiMaps(maps []table.MapInfo) (all []agentapi.Map) {
	for _, m := range maps {
		all = append(all, agentapi.Map(m))
	}
	return all
}

// choices are the active settings with the reason for each.
func (a *Agent) choices(node reconcile.Status) []agentapi.Choice {
	attach := agentapi.Choice{Name: "attach", Requested: "auto", Selected: "tcx", Reason: "the kernel has tcx: programs are replaced by one atomic update"}
	if !a.datapath.HaveTCX() {
		attach.Selected, attach.Reason = "clsact", "the kernel has no tcx (Linux 6.6)"
	}
	mtu := agentapi.Choice{Name: "mtu", Requested: "auto", Selected: fmt.Sprint(node.Desired.MTU), Reason: "that of the uplink"}
	if node.Uplink != nil && node.Desired.MTU < node.Uplink.MTU {
		mtu.Reason = fmt.Sprintf("that of the uplink, less the %d bytes that a tunnel adds", node.Uplink.MTU-node.Desired.MTU)
	}
	if a.config.MTU != 0 {
		mtu.Requested, mtu.Reason = fmt.Sprint(a.config.MTU), "as requested"
	}
	uplink := agentapi.Choice{Name: "uplink", Requested: a.config.Uplink, Selected: "none", Reason: "no device fits"}
	if node.Uplink != nil {
		uplink.Selected, uplink.Reason = node.Uplink.Name, "as requested"
		if a.config.Uplink == "auto" {
			uplink.Reason = "it holds the node's address, or else the default route"
		}
	}
	if len(node.Uplinks) > 1 {
		var names []string
		for _, u := range node.Uplinks {
			names = append(names, u.Name)
		}
		uplink.Selected = strings.Join(names, ", ")
		if a.config.Uplink == "auto" {
			uplink.Reason = "the first holds the node's address, or else the default route; the others have default routes"
		}
	}
	masquerade := agentapi.Choice{Name: "masquerade", Requested: onOff(a.config.Masquerade), Selected: onOff(node.Desired.Masquerade), Reason: "by BPF programs, with the address of the uplink that a packet leaves by"}
	if !node.Desired.Masquerade {
		masquerade.Reason = "as requested"
		if a.config.Masquerade {
			masquerade.Reason = "this node has no pod range yet"
		}
	}
	return slices.Concat(
		a.modes.Choices(),
		[]agentapi.Choice{a.flows.Status(), attach, uplink, a.tunnelChoice(node.Desired), a.encryptionChoice(node.Desired), a.limits.Choice(), mtu, masquerade},
		a.serviceChoices(node.Desired),
		[]agentapi.Choice{a.sameNode.Choice()},
	)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Drops lists the counters of dropped packets.
func (a *Agent) Drops(context.Context) ([]agentapi.Drop, error) {
	drops, err := a.datapath.Drops.All()
	if err != nil {
		return nil, err
	}
	var all []agentapi.Drop
	for _, d := range drops {
		all = append(all, agentapi.Drop{Reason: d.Reason.String(), Program: d.Program, Packets: d.Packets, Bytes: d.Bytes, Meaning: d.Reason.Meaning()})
	}
	return all, nil
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}

// podMTU is the current MTU of pods, in bytes.
func (a *Agent) podMTU() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reconciler.Status().Desired.MTU
}
