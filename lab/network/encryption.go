package network

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/capture"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/wait"
)

// Encryption is how a network encrypts packets between pods of different nodes.
type Encryption string

// The kinds of encryption.
const (
	WireGuard Encryption = "wireguard"
	IPsec     Encryption = "ipsec"
)

// EncryptionOf is how a network encrypts, empty for one that does not. flow is what its packets are on the wire.
func EncryptionOf(n Network) (e Encryption, flow capture.Flow) {
	port := uint16(kernelWireGuardPort)
	switch n := n.(type) {
	case Beeline:
		e, port = n.encryption, beelineWireGuardPort
	case *Reference:
		e = n.encryption
	}
	switch e {
	case WireGuard:
		return e, capture.Flow{Protocol: unix.IPPROTO_UDP, Port: port}
	case IPsec:
		return e, capture.Flow{Protocol: unix.IPPROTO_ESP}
	}
	return "", capture.Flow{}
}

// The UDP ports of WireGuard: the agent's default, and the one of WireGuard's own examples.
const (
	beelineWireGuardPort = 28781
	kernelWireGuardPort  = 51820
)

// The networks of this project in the suite encryption, beside the plain one.
var (
	beelineWireGuard = beelineEncrypted(WireGuard, "ChaCha20-Poly1305 between nodes, on UDP")
	beelineIPsec     = beelineEncrypted(IPsec, "AES-128-GCM between nodes, by ESP")
)

func beelineEncrypted(e Encryption, how string) Beeline {
	return Beeline{
		name: "beeline-" + string(e), flags: []string{"--routing", "ebpf", "--encryption", string(e)}, encryption: e,
		description: fmt.Sprintf("Beeline with --encryption=%s, strict: %s", e, how),
	}
}

// What the kernel needs for each kind of encryption, and Beeline's IPsec beside that.
var (
	wireGuardDevices = device("WireGuard (CONFIG_WIREGUARD)", "ip link add probe type wireguard")
	ipsecStates      = device("ESP with AES-GCM (CONFIG_INET_ESP, CONFIG_XFRM_USER, CONFIG_CRYPTO_GCM)",
		"ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 1 mode tunnel aead 'rfc4106(gcm(aes))' 0x"+strings.Repeat("01", ipsecKeyBytes)+" 128")
	ipsecDevices = device("xfrm interfaces (CONFIG_XFRM_INTERFACE)", "ip link add probe type xfrm dev lo if_id 1")
)

// ipsecKeysOf is the file of the cluster's keys of IPsec.
func ipsecKeysOf(lab *testbed.Lab) string { return filepath.Join(lab.Dir(), "ipsec.keys") }

// writeIPsecKeys makes the cluster's keys: one generation.
func writeIPsecKeys(lab *testbed.Lab) error {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	line := fmt.Sprintf("1 aes-128-gcm %s\n", base64.StdEncoding.EncodeToString(secret[:]))
	return os.WriteFile(ipsecKeysOf(lab), []byte(line), 0o400)
}

// encryptionFlags are those of a node's agent beside the choice of the kind: keys and state are the node's own.
func (c Beeline) encryptionFlags(lab *testbed.Lab, node *testbed.Node) []string {
	switch c.encryption {
	case WireGuard:
		return []string{"--wireguard-key", filepath.Join(node.StateDir, "wireguard.key")}
	case IPsec:
		return []string{"--ipsec-keys", ipsecKeysOf(lab), "--ipsec-state", filepath.Join(node.StateDir, "ipsec.json")}
	}
	return nil
}

// introduce gives nodes the annotations by which the others encrypt to them, and returns when all paths are encrypted. It
// does what agents do where an API server keeps what they write.
func (c Beeline) introduce(ctx context.Context, lab *testbed.Lab) error {
	ctx, cancel := context.WithTimeout(ctx, AgentPatience)
	defer cancel()
	nodes := map[string]map[string]string{}
	err := eachAgent(ctx, lab, func(node *testbed.Node, s *agentapi.Status) error {
		if len(s.Annotations) == 0 {
			return fmt.Errorf("it announces no key: %v", s.Choices)
		}
		nodes[node.Name] = s.Annotations
		return nil
	})
	if err != nil {
		return err
	}
	if err := writeNodeManifests(manifestsOf(lab), lab, nodes); err != nil {
		return err
	}
	return eachAgent(ctx, lab, func(_ *testbed.Node, s *agentapi.Status) error {
		if len(s.Nodes) != len(lab.Nodes())-1 {
			return fmt.Errorf("it knows %d other nodes", len(s.Nodes))
		}
		for _, other := range s.Nodes {
			if other.Path != string(c.encryption) {
				return fmt.Errorf("its path to %s is %q", other.Name, other.Path)
			}
		}
		return nil
	})
}

// eachAgent asks the agent of each node until the answer is as wanted.
func eachAgent(ctx context.Context, lab *testbed.Lab, wanted func(*testbed.Node, *agentapi.Status) error) error {
	for _, node := range lab.Nodes() {
		client := agentapi.NewClient(agentSocket(node))
		for {
			s, err := client.Status(ctx)
			if err == nil {
				err = wanted(node, s)
			}
			if err == nil {
				break
			}
			if wait.For(ctx, 20*time.Millisecond) != nil {
				return fmt.Errorf("agent of %s: %w\nthe end of %s:\n%s", node.Name, err, AgentLog(node), logTail(AgentLog(node), 20))
			}
		}
	}
	return nil
}
