// Package encryption keeps this node's private key of WireGuard.
package encryption

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/internal/device/wireguard"
)

// LoadKey reads the private key of this node, in base64 as `wg genkey` writes it. Without the file it makes a key and
// writes the file, which only root can read. The key outlives agents and reboots: other nodes know it. It is an error if
// others can read the file.
func LoadKey(path string) (key wireguard.Key, made bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		key, err = makeKey(path)
		return key, err == nil, err
	}
	if err != nil {
		return key, false, fmt.Errorf("read WireGuard's private key: %w", err)
	}
	defer f.Close()
	key, err = readKey(f)
	return key, false, err
}

// keyFileSize is more than a key in base64, with an end of line.
const keyFileSize = 100

func readKey(f *os.File) (key wireguard.Key, err error) {
	info, err := f.Stat()
	if err != nil {
		return key, fmt.Errorf("read WireGuard's private key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return key, fmt.Errorf("%s is no file, and no private key of WireGuard", f.Name())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return key, fmt.Errorf("others than root can use WireGuard's private key %s (mode %v): delete the file for a new key, or run chmod 600 if it is still secret", f.Name(), info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, keyFileSize))
	if err != nil {
		return key, fmt.Errorf("read WireGuard's private key: %w", err)
	}
	if key, err = wgtypes.ParseKey(strings.TrimSpace(string(text))); err == nil && key == (wireguard.Key{}) {
		err = errors.New("it is zero")
	}
	if err != nil {
		return wireguard.Key{}, fmt.Errorf("%s is no private key of WireGuard (delete the file for a new one): %w", f.Name(), err)
	}
	return key, nil
}

// makeKey writes a new key to the disk before anybody can learn its public key.
func makeKey(path string) (key wireguard.Key, err error) {
	if key, err = wgtypes.GeneratePrivateKey(); err != nil {
		return key, fmt.Errorf("make WireGuard's private key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return key, fmt.Errorf("make directory of WireGuard's private key: %w", err)
	}
	if err := writeKey(path, key); err != nil {
		return wireguard.Key{}, fmt.Errorf("write WireGuard's private key: %w", err)
	}
	return key, nil
}

// writeKey makes the file by rename. What an earlier agent has left half written, with any mode, goes first.
func writeKey(path string, key wireguard.Key) error {
	temporary := path + ".tmp"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(key.String() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
