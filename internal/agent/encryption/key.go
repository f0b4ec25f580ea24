// Package encryption keeps this node's private key of WireGuard.
package encryption

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// LoadKey reads the private key of this node, in base64 as `wg genkey` writes it. Without the file it makes a key and
// writes the file, which only root can read. The key outlives agents and reboots: other nodes know it.
func LoadKey(path string) (key wireguard.Key, made bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key, err = makeKey(path)
		return key, err == nil, err
	}
	if err != nil {
		return key, false, fmt.Errorf("read WireGuard's private key: %w", err)
	}
	if key, err = wgtypes.ParseKey(strings.TrimSpace(string(text))); err != nil {
		return key, false, fmt.Errorf("%s is no private key of WireGuard (delete the file for a new one): %w", path, err)
	}
	return key, false, nil
}

// makeKey writes a new key to the disk before anybody can learn its public key.
func makeKey(path string) (key wireguard.Key, err error) {
	if key, err = wgtypes.GeneratePrivateKey(); err != nil {
		return key, fmt.Errorf("make WireGuard's private key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return key, fmt.Errorf("make directory of WireGuard's private key: %w", err)
	}
	temporary := path + ".tmp"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(key.String() + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return key, fmt.Errorf("write WireGuard's private key: %w", err)
	}
	return key, nil
}
