// Package ipseckeys derives the keys of the tunnels between nodes from the cluster's keys, and sees to it that no key is ever used
// for two tunnels: AES-GCM would give its secrets away.
package ipseckeys

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Generation numbers the cluster's keys. Nodes use the highest one that both have.
type Generation uint32

// Key is one of the cluster's keys, the same on all nodes.
type Key struct {
	Generation Generation
	// Bits are the length of the keys of AES-GCM that are derived from it: 128 or 256.
	Bits int
	// Secret is random: at least secretMin bytes.
	Secret []byte
}

// Bounds of the file of keys.
const (
	fileMax        = 16 << 10
	secretMin      = 32
	generationsMax = 4
)

// ciphers are the names in the file of keys.
var ciphers = map[string]int{"aes-128-gcm": 128, "aes-256-gcm": 256}

// ReadKeys reads the file of the cluster's keys. Each line is a generation, a cipher (aes-128-gcm or aes-256-gcm) and a secret
// of at least 32 random bytes in base64; lines that begin with # are comments. It is an error if others than root can read
// the file. Errors do not contain secrets.
func ReadKeys(path string) ([]Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the keys of IPsec: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the keys of IPsec: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file, and has no keys of IPsec", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others than root can read the keys of IPsec in %s (mode %v): make new keys, and the mode 0400", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err != nil {
		return nil, fmt.Errorf("read the keys of IPsec: %w", err)
	}
	if len(text) > fileMax {
		return nil, fmt.Errorf("%s has more than %d bytes", path, fileMax)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

// parseKeys gives the keys by descending generation.
func parseKeys(text []byte) (keys []Key, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseKey(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if slices.ContainsFunc(keys, func(other Key) bool { return other.Generation == k.Generation }) {
			return nil, fmt.Errorf("line %d: generation %d is there twice", n, k.Generation)
		}
		keys = append(keys, k)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 || len(keys) > generationsMax {
		return nil, fmt.Errorf("it has %d keys, and needs 1 to %d", len(keys), generationsMax)
	}
	slices.SortFunc(keys, func(a, b Key) int { return int(int64(b.Generation) - int64(a.Generation)) })
	return keys, nil
}

func parseKey(fields []string) (k Key, err error) {
	if len(fields) != 3 {
		return k, fmt.Errorf("it has %d words, and needs 3: a generation, a cipher, and a secret in base64", len(fields))
	}
	generation, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil || generation == 0 {
		return k, fmt.Errorf("the generation %q is no number from 1 to 4294967295", fields[0])
	}
	bits, known := ciphers[fields[1]]
	if !known {
		return k, fmt.Errorf("the cipher %q is neither aes-128-gcm nor aes-256-gcm", fields[1])
	}
	secret, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil {
		return k, errors.New("the secret is not in base64")
	}
	if len(secret) < secretMin || allZero(secret) {
		return k, fmt.Errorf("the secret has %d bytes, and needs %d random ones: openssl rand -base64 32", len(secret), secretMin)
	}
	return Key{Generation: Generation(generation), Bits: bits, Secret: secret}, nil
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }
