package programs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
)

// acceleration is where an uplink forwards, and why not where it was requested.
type acceleration struct {
	attach.Accelerated
	err error
}

// Acceleration says where each uplink forwards external packets; requested is the configuration.
func (p *Programs) Acceleration(requested string) agentapi.Choice {
	c := agentapi.Choice{Name: "nodeport acceleration", Requested: requested, Selected: "none", Reason: "there is no uplink"}
	var chosen, reasons []string
	for _, u := range p.uplinks {
		at, known := p.accelerated[u.Name]
		if !known {
			continue
		}
		if !slices.Contains(chosen, string(at.Hook)) {
			chosen = append(chosen, string(at.Hook))
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s, because %s", u.Name, at.Hook, at.Reason))
	}
	if len(chosen) > 0 {
		c.Selected, c.Reason = strings.Join(chosen, ", "), strings.Join(reasons, "; ")
	}
	return c
}

// Problems are those of uplinks that do not forward where it was requested.
func (p *Programs) Problems() (all []string) {
	for _, u := range p.uplinks {
		if err := p.accelerated[u.Name].err; err != nil {
			all = append(all, "--nodeport-acceleration=xdp: "+err.Error())
		}
	}
	return all
}
