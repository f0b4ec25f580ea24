package fwd

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Tunnel is the table of this node's own ends of tunnels. The agent is its only writer.
type Tunnel struct{ m *ebpf.Map }

// NewTunnel gives the table its map.
func NewTunnel(m *bpf.Maps) Tunnel { return Tunnel{m.TunnelSources} }

// SetSources sets the addresses that packets in tunnels come from, one for each family of the other end. They
// must be addresses of this node that the other nodes know it by; with the zero Addr the kernel chooses.
func (t Tunnel) SetSources(ipv4, ipv6 netip.Addr) error {
	var err error
	for family, a := range []netip.Addr{ipv4, ipv6} {
		var value bpf.Address
		if a.IsValid() {
			value = bpf.AddressOf(a)
		}
		if e := t.m.Put(uint32(family), value); e != nil {
			err = errors.Join(err, fmt.Errorf("set source %s of tunnels: %w", a, e))
		}
	}
	return err
}
