package bpf

// TunnelPrograms are the programs of the VXLAN device.
var TunnelPrograms = []string{ProgToTunnel, ProgFromTunnel}

// WireguardPrograms are the programs of the WireGuard device.
var WireguardPrograms = []string{ProgFromWireguard}

// IPsecPrograms are the programs of the XFRM interface.
var IPsecPrograms = []string{ProgFromIpsec}

// MacvlanPrograms are the programs of a parent of macvlan devices, beside those of an uplink.
var MacvlanPrograms = []string{ProgFromMacvlan, ProgToMacvlan}

// SocketProgramNames are the programs at the sockets of a cgroup, in the order of bpf/README.md.
var SocketProgramNames = []string{
	ProgConnect4, ProgConnect6, ProgGetpeername4, ProgGetpeername6,
	ProgSendmsg4, ProgSendmsg6, ProgRecvmsg4, ProgRecvmsg6,
	ProgSockRelease,
}

// ProgramNames names the enum of bpf/types.h, in its order.
var ProgramNames = [ProgramPROGRAM_MAX]string{
	ProgramPROGRAM_FROM_POD:    ProgFromPod,
	ProgramPROGRAM_TO_POD:      ProgToPod,
	ProgramPROGRAM_FROM_WIRE:   ProgFromWire,
	ProgramPROGRAM_TO_WIRE:     ProgToWire,
	ProgramPROGRAM_FROM_TUNNEL: ProgFromTunnel,
	ProgramPROGRAM_TO_TUNNEL:   ProgToTunnel,
	ProgramPROGRAM_WIRE_XDP:    ProgWireXdp,

	ProgramPROGRAM_FROM_MACVLAN: ProgFromMacvlan,
	ProgramPROGRAM_TO_MACVLAN:   ProgToMacvlan,

	ProgramPROGRAM_FROM_WIREGUARD: ProgFromWireguard,
	ProgramPROGRAM_FROM_IPSEC:     ProgFromIpsec,
}
