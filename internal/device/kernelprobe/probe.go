// Package kernelprobe finds out what this kernel has.
package kernelprobe

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/clsact"
)

// Kinds tries which kinds of device, qdisc and IPsec this kernel has: it makes one of each in a temporary network namespace. The
// caller's namespace and thread do not change. The result has an entry for every name, nil if the kernel has it, else the reason:
//
//   - devices: veth, macvlan, ipvlan, vxlan, geneve, wireguard, netkit, vrf, dummy
//   - qdiscs: clsact, fq, fq_codel, netem
//   - esp4, esp6: IPsec ESP with AES-GCM
//
// The kernel loads the modules that this needs.
func Kinds() map[string]error {
	result := make(chan map[string]error)
	go func() { result <- probeInNewNetns() }()
	return <-result
}

// probeInNewNetns moves a thread into a new namespace and back. A thread that cannot return stays locked, and the runtime ends it with
// its goroutine.
func probeInNewNetns() map[string]error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return allMissing(fmt.Errorf("open own network namespace: %w", err))
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return allMissing(fmt.Errorf("create a network namespace to probe in: %w", err))
	}
	result := probeAll()
	if err := netns.Set(home); err == nil {
		runtime.UnlockOSThread()
	}
	return result
}

// probes are tried in order; parent is the index of a veth device.
var probes = []struct {
	name string
	try  func(parent int) error
}{
	{"macvlan", func(parent int) error {
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: probeAttrs(parent), Mode: netlink.MACVLAN_MODE_BRIDGE})
	}},
	{"ipvlan", func(parent int) error {
		return netlink.LinkAdd(&netlink.IPVlan{LinkAttrs: probeAttrs(parent), Mode: netlink.IPVLAN_MODE_L2})
	}},
	{"vxlan", func(int) error {
		return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: probeAttrs(0), VxlanId: 1, Port: 4789})
	}},
	{"geneve", func(int) error {
		return netlink.LinkAdd(&netlink.Geneve{LinkAttrs: probeAttrs(0), ID: 1, Remote: net.IPv4(192, 0, 2, 1)})
	}},
	{"wireguard", func(int) error { return netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: probeAttrs(0)}) }},
	{"netkit", func(int) error {
		return netlink.LinkAdd(&netlink.Netkit{LinkAttrs: probeAttrs(0), Mode: netlink.NETKIT_MODE_L3,
			Policy: netlink.NETKIT_POLICY_FORWARD, PeerPolicy: netlink.NETKIT_POLICY_FORWARD})
	}},
	{"vrf", func(int) error { return netlink.LinkAdd(&netlink.Vrf{LinkAttrs: probeAttrs(0), Table: 100}) }},
	{"dummy", func(int) error { return netlink.LinkAdd(&netlink.Dummy{LinkAttrs: probeAttrs(0)}) }},
	{"fq", func(parent int) error { return probeQdisc("fq", parent) }},
	{"fq_codel", func(parent int) error { return probeQdisc("fq_codel", parent) }},
	{"netem", func(parent int) error {
		return netlink.QdiscReplace(netlink.NewNetem(probeRoot(parent), netlink.NetemQdiscAttrs{Latency: 1000}))
	}},
	{"clsact", clsact.Ensure},
	{"esp4", func(int) error { return probeESP(net.IPv4(192, 0, 2, 1), net.IPv4(192, 0, 2, 2)) }},
	{"esp6", func(int) error { return probeESP(net.ParseIP("2001:db8::1"), net.ParseIP("2001:db8::2")) }},
}

func allMissing(reason error) map[string]error {
	result := map[string]error{"veth": reason}
	for _, probe := range probes {
		result[probe.name] = reason
	}
	return result
}

// probeAll probes in the namespace of the calling thread and does not clean up.
func probeAll() map[string]error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe"
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "probe-peer"
	result := map[string]error{"veth": explain(netlink.LinkAdd(veth))}
	parent := 0
	if result["veth"] == nil {
		link, err := netlink.LinkByName("probe")
		if err != nil {
			return allMissing(fmt.Errorf("find device probe after its creation: %w", err))
		}
		parent = link.Attrs().Index
	}
	for _, probe := range probes {
		result[probe.name] = explain(probe.try(parent))
		// The next probe uses the same name.
		if link, err := netlink.LinkByName(probeName); err == nil {
			_ = netlink.LinkDel(link) // on error the next probe reports that the name is taken
		}
	}
	return result
}

const probeName = "probed"

func probeAttrs(parent int) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = probeName
	attrs.ParentIndex = parent
	return attrs
}

func probeRoot(device int) netlink.QdiscAttrs {
	return netlink.QdiscAttrs{LinkIndex: device, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
}

func probeQdisc(kind string, device int) error {
	return netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: probeRoot(device), QdiscType: kind})
}

func probeESP(source, destination net.IP) error {
	const icvBits, keyBytes = 128, 20 // AES-128 and a salt of four bytes (RFC 4106)
	return netlink.XfrmStateAdd(&netlink.XfrmState{
		Src: source, Dst: destination, Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL, Spi: 1, Reqid: 1,
		Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, keyBytes), ICVLen: icvBits},
	})
}

// explain says in words why a probe failed.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("not in this kernel: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("no permission to probe: %w", err)
	}
	return fmt.Errorf("probe: %w", err)
}
