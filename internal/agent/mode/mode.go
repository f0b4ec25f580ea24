// Package mode chooses the modes that the configuration leaves open or the kernel does not support, once, when the
// agent starts.
package mode

import (
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
)

// Modes are the modes of one node.
type Modes struct {
	// Routing, Services and Policy are active.
	Routing  node.Routing
	Services lb.Mode
	Policy   policy.Mode
	// Device is the kind of the devices of new pods; NoNetkit says why it cannot be netkit on this node.
	Device   device.Kind
	NoNetkit error
	// DeviceOfPools is the kind for pods of an IPPool that names none; empty: Device.
	DeviceOfPools device.Kind
	// Cgroup is where sockets are connected to backends; NoCgroup says why there is none.
	Cgroup    string
	NoCgroup  error
	requested Requested
	// noConntrack says that eBPF routing was requested beside kube-proxy on a kernel where they do not work together.
	noConntrack bool
}

// Requested are the modes of the configuration, and its directory of sockets.
type Requested struct {
	Device   device.Kind
	Routing  node.Routing
	Services lb.Mode
	Policy   policy.Mode
	Cgroup   string
}

// Choose probes the kernel for modes that the configuration leaves open.
func Choose(requested Requested) (Modes, error) {
	m := Modes{requested: requested, Routing: requested.Routing, Services: requested.Services, Policy: requested.Policy}
	m.chooseDevice()
	if m.Policy == policy.ModeAuto {
		m.Policy = policy.ModeEBPF
	}
	if m.Services == lb.ModeAuto {
		m.Services = lb.ModeEBPF
	}
	if m.Services == lb.ModeEBPF {
		m.Cgroup, m.NoCgroup = FindCgroup(requested.Cgroup)
	}
	if m.Routing != node.RoutingEBPF || m.Services != lb.ModeKubeProxy {
		return m, nil
	}
	if err := kernelprobe.LoadConntrack(); err != nil {
		return m, err
	}
	have, err := kernel.HaveConntrack()
	if err != nil {
		return m, err
	}
	if !have {
		m.Routing, m.noConntrack = node.RoutingKernel, true
	}
	return m, nil
}

// chooseDevice probes for netkit. A probe that fails for any reason leaves veth, which every kernel has.
func (m *Modes) chooseDevice() {
	m.NoNetkit = kernel.HaveNetkit()
	m.Device = device.Netkit
	if m.NoNetkit != nil || m.requested.Device == device.Veth {
		m.Device = device.Veth
	}
	if m.requested.Device == device.Macvlan {
		m.DeviceOfPools = device.Macvlan
	}
}

// deviceChoice says why new pods get this device.
func (m *Modes) deviceChoice() agentapi.Choice {
	c := agentapi.Choice{Name: "device", Requested: string(m.requested.Device), Selected: string(m.Device), Reason: "as requested"}
	switch {
	case m.requested.Device == device.Veth:
	case m.requested.Device == device.Macvlan:
		c.Reason = "pods with addresses of IPPools get macvlan devices, others " + c.Selected
	case m.NoNetkit != nil:
		c.Reason = "this kernel has no netkit devices (Linux 6.7, CONFIG_NETKIT): " + m.NoNetkit.Error()
	case m.requested.Device != device.Netkit:
		c.Reason = "packets leave a pod without a queue; existing pods keep their device"
	}
	return c
}

// Choices are the active modes with the reason for each.
func (m Modes) Choices() []agentapi.Choice {
	routing := agentapi.Choice{Name: "routing", Requested: string(m.requested.Routing), Selected: string(m.Routing)}
	switch {
	case m.noConntrack:
		routing.Reason = "BPF programs cannot read this kernel's connection tracking (Linux 5.18, CONFIG_NF_CONNTRACK, CONFIG_DEBUG_INFO_BTF), which they need beside kube-proxy"
	case m.Routing == node.RoutingKernel:
		routing.Reason = "as requested: the kernel stack forwards"
	default:
		routing.Reason = "packets between pods bypass the kernel stack"
	}
	services := agentapi.Choice{Name: "services", Requested: string(m.requested.Services), Selected: string(m.Services), Reason: "as requested"}
	switch {
	case m.NoCgroup != nil:
		services.Reason = "packet by packet: " + m.NoCgroup.Error()
	case m.Services == lb.ModeEBPF:
		services.Reason = "sockets below " + m.Cgroup + " connect to backends; packets from elsewhere are translated"
	}
	policies := agentapi.Choice{Name: "policy", Requested: string(m.requested.Policy), Selected: string(m.Policy), Reason: "as requested: NetworkPolicies have no effect on this node"}
	if m.Policy == policy.ModeEBPF {
		policies.Reason = "NetworkPolicies are enforced where packets leave and enter pods"
	}
	return []agentapi.Choice{m.deviceChoice(), routing, services, policies}
}
