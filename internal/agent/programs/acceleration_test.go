package programs

import (
	"errors"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// Each uplink has its own hook, and an uplink that cannot have the requested one is a problem. Uplinks of before are no
// part of it, nor those without programs yet.
func TestAcceleration(t *testing.T) {
	p := New(Options{})
	p.accelerated = map[string]acceleration{
		"eth0":   {Accelerated: attach.Accelerated{Hook: config.AccelerationXDP, Reason: "its driver has it"}},
		"eth1":   {attach.Accelerated{Hook: config.AccelerationTC, Reason: "its driver has no XDP"}, errors.New("eth1: no XDP")},
		"eth2":   {Accelerated: attach.Accelerated{Hook: config.AccelerationXDP, Reason: "its driver has it"}},
		"former": {attach.Accelerated{Hook: config.AccelerationTC}, errors.New("former: no XDP")},
	}
	choice := agentapi.Choice{Name: "nodeport acceleration", Requested: "xdp", Selected: "none", Reason: "there is no uplink"}
	if got := p.Acceleration("xdp"); got != choice || len(p.Problems()) > 0 {
		t.Errorf("without uplinks: %+v, problems %q", got, p.Problems())
	}
	p.Update([]netdev.Uplink{{Name: "eth0"}, {Name: "eth1"}, {Name: "eth2"}, {Name: "new"}})
	choice.Selected, choice.Reason = "xdp, tc", "eth0: xdp, because its driver has it; eth1: tc, because its driver has no XDP; eth2: xdp, because its driver has it"
	if got := p.Acceleration("xdp"); got != choice {
		t.Errorf("got %+v, want %+v", got, choice)
	}
	if got, want := p.Problems(), []string{"--nodeport-acceleration=xdp: eth1: no XDP"}; !slices.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}
