package config

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Programs are the programs that the datapath may attach with this configuration.
func (c Datapath) Programs() []string {
	all := []string{bpf.ProgFromPod, bpf.ProgFromTunnel, bpf.ProgToTunnel}
	if c.NeedsToPod() {
		all = append(all, bpf.ProgToPod)
	}
	if c.NeedsFromWire() {
		all = append(all, bpf.ProgFromWire)
	}
	if c.NeedsToWire() {
		all = append(all, bpf.ProgToWire)
	}
	if c.Macvlan {
		all = append(all, bpf.MacvlanPrograms...)
	}
	all = append(all, c.Encryption.Programs()...)
	if c.mayAccelerate() {
		all = append(all, bpf.ProgWireXdp)
	}
	if c.AtSockets() {
		all = append(all, bpf.SocketProgramNames...)
	}
	return all
}

// AgentPrograms are the programs that the agent runs; no packet meets them.
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

// NeedsToPod reports whether to_pod has work to do. With eBPF routing and without Services and conntrack the host's
// stack delivers only the node's own packets to pods, which need no check. It also delivers to pods with macvlan devices.
func (c Datapath) NeedsToPod() bool {
	return !c.EBPFRouting || c.Services || c.Tracks() || c.Macvlan
}

// NeedsFromWire reports whether from_wire has work to do.
func (c Datapath) NeedsFromWire() bool {
	return c.EBPFRouting || c.Translates() || c.StrictEncryption()
}

// NeedsToWire reports whether to_wire has work to do.
func (c Datapath) NeedsToWire() bool { return c.Translates() || c.StrictEncryption() }

// StrictEncryption reports whether plaintext of what has to be encrypted is dropped.
func (c Datapath) StrictEncryption() bool { return c.Encryption != "" && !c.PlaintextAllowed }

// mayAccelerate reports whether wire_xdp may be attached to a device.
func (c Datapath) mayAccelerate() bool {
	return c.Services && (c.Acceleration == AccelerationAuto || c.Acceleration == AccelerationXDP)
}

// AtSockets reports whether sockets are load-balanced.
func (c Datapath) AtSockets() bool { return c.Services && c.Cgroup != "" }

// Tracks reports whether conntrack is in use: for policies, and for flow events of all pods.
func (c Datapath) Tracks() bool { return c.Policy || c.Flows == FlowsAll }

// Translates reports whether the datapath rewrites addresses, for Services or for masquerading.
func (c Datapath) Translates() bool { return c.Services || c.Masquerade }
