package ippools

import (
	"context"
	"errors"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/conflict"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// prober asks the networks of IPPools whether another machine has an address, on the uplink that it gives for a pool.
type prober func(pool string) (netdev.Uplink, bool)

// macLength is the length of an Ethernet address.
const macLength = 6

// Probe implements ipclaim.Prober.
func (uplinkOf prober) Probe(ctx context.Context, p *ippool.Pool, a netip.Addr) (string, error) {
	if !p.Probe {
		return "", nil
	}
	uplink, ok := uplinkOf(p.Name)
	if !ok {
		return "", agentapi.Errorf(agentapi.CodeNotReady, "this node has no uplink of IPPool %s to probe address %s", p.Name, a)
	}
	if len(uplink.MAC) != macLength {
		return "", nil // a device without Ethernet has no neighbours that answer
	}
	err := conflict.Probe(ctx, conflict.Device{Index: uplink.Index, MAC: uplink.MAC}, a)
	if inUse := (*conflict.InUseError)(nil); errors.As(err, &inUse) {
		return inUse.Error(), nil
	}
	return "", err
}
