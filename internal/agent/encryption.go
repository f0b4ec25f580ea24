package agent

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// encryptionChoice says how many nodes are reached by encrypted packets, and why not all.
func (a *Agent) encryptionChoice(d node.Desired) agentapi.Choice {
	c := agentapi.Choice{Name: "encryption", Requested: string(a.config.Encryption), Selected: string(a.config.Encryption), Reason: "as requested"}
	if a.config.Encryption == node.EncryptionNone {
		return c
	}
	encrypted := 0
	for _, n := range d.Nodes {
		if strings.Contains(n.Path, agentapi.NodePathWireGuard) {
			encrypted++
		}
	}
	c.Reason = fmt.Sprintf("packets to %d of %d other nodes, by UDP port %d", encrypted, len(d.Nodes), a.config.WireGuardPort)
	if !a.config.EncryptionStrict {
		c.Reason += "; to and from the others in plaintext"
	}
	if d.Encryption.Missing != nil {
		c.Reason = "packets to other nodes are dropped: " + d.Encryption.Missing.Error()
	}
	return c
}

// publishKey gives other nodes this node's public key, by the API server. Without one, the Node's manifest has it.
func (a *Agent) publishKey(key string) {
	if a.reporter != nil {
		a.reporter.PublishKey(key)
	}
}
