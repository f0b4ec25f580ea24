package netlab

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agent/encryption"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/device/ipsec"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Encryption is a kind of encryption between nodes. The empty one is none.
type Encryption struct {
	// Name is what --encryption calls it, Device that of its device.
	Name, Device string
	// MTU is that of pods with nodes that have IPv4 addresses and uplinks of 1500 bytes.
	MTU    int
	module string
}

// WireGuard and IPsec are all kinds.
var (
	WireGuard = Encryption{"wireguard", wireguard.Name, 1440, "wireguard"}
	IPsec     = Encryption{"ipsec", ipsec.Name, 1446, "esp4"}
)

// Missing says why this kernel does not have it; nil if it does.
func (e Encryption) Missing() error {
	_, err := os.Stat(filepath.Join("/sys/module", e.module))
	return err
}

// EncryptionOf is what flags of an agent ask for: --encryption=NAME.
func EncryptionOf(flags []string) Encryption {
	for _, e := range []Encryption{WireGuard, IPsec} {
		if slices.Contains(flags, "--encryption="+e.Name) {
			return e
		}
	}
	return Encryption{}
}

// encryptionFiles are the flags with the node's files of keys.
func encryptionFiles(n *testbed.Node) []string {
	return []string{"--wireguard-key", KeyFile(n), "--ipsec-keys", keysFile(n), "--ipsec-state", filepath.Join(StateDir(n), "ipsec.json")}
}

// KeyFile is the path of a node's private key of WireGuard.
func KeyFile(n *testbed.Node) string { return filepath.Join(StateDir(n), "wireguard.key") }

func keysFile(n *testbed.Node) string { return filepath.Join(StateDir(n), "ipsec.keys") }

// MakeKey makes a node's key of WireGuard, if it has none, as its agent would. It returns the annotation with the public one.
func MakeKey(n *testbed.Node) (annotations map[string]string, err error) {
	key, _, err := encryption.LoadKey(KeyFile(n))
	if err != nil {
		return nil, err
	}
	return map[string]string{v1alpha1.AnnotationWireGuardKey: key.PublicKey().String()}, nil
}

// WriteKeys replaces the node's copy of the Secret of IPsec by one with these generations of keys.
func WriteKeys(n *testbed.Node, generations ...int) error {
	var lines strings.Builder
	for _, g := range generations {
		cipher := []string{"aes-128-gcm", "aes-256-gcm"}[g%2]
		fmt.Fprintln(&lines, g, cipher, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(g)}, 32)))
	}
	if err := os.MkdirAll(StateDir(n), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(keysFile(n)+".new", []byte(lines.String()), 0o400); err != nil {
		return err
	}
	return os.Rename(keysFile(n)+".new", keysFile(n))
}
