package config

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Programs are those that the datapath may attach with this configuration. The verifier takes its time for each program, and nobody has
// to wait for one that nothing will run.
func (c Datapath) Programs() []string {
	all := []string{bpf.ProgFromPod, bpf.ProgFromTunnel, bpf.ProgToTunnel}
	if c.NeedsToPod() {
		all = append(all, bpf.ProgToPod)
	}
	if c.EBPFRouting || c.Translates() {
		all = append(all, bpf.ProgFromWire)
	}
	if c.Translates() {
		all = append(all, bpf.ProgToWire)
	}
	if c.mayAccelerate() {
		all = append(all, bpf.ProgWireXdp)
	}
	if c.AtSockets() {
		all = append(all, bpf.SocketProgramNames...)
	}
	return all
}

// AgentPrograms are those that no packet meets: the agent runs them.
func (c Datapath) AgentPrograms() []string {
	var all []string
	if c.Tracks() {
		all = append(all, bpf.ProgFlushConntrack, bpf.ProgFlushPod)
	}
	if c.Tracks() && c.Flows >= FlowsPolicy {
		all = append(all, bpf.ProgReportFlows)
	}
	if c.Flows != FlowsOff {
		all = append(all, bpf.ProgFlushDrops)
	}
	return all
}

// NeedsToPod tells whether to_pod has anything to do. With eBPF routing and without Services and sessions the stack delivers to pods only
// what the node itself sends, which needs no second look.
func (c Datapath) NeedsToPod() bool { return !c.EBPFRouting || c.Services || c.Tracks() }

// mayAccelerate tells whether there may be a device that takes wire_xdp.
func (c Datapath) mayAccelerate() bool {
	return c.Services && (c.Acceleration == AccelerationAuto || c.Acceleration == AccelerationXDP)
}

// AtSockets tells whether sockets find Services.
func (c Datapath) AtSockets() bool { return c.Services && c.Cgroup != "" }

// Tracks tells whether there may be sessions: with flows of all pods also without policies.
func (c Datapath) Tracks() bool { return c.Policy || c.Flows == FlowsAll }

// Translates tells whether packets are translated at all.
func (c Datapath) Translates() bool { return c.Services || c.Masquerade }
