// Package samenode keeps the sockets of pods that opted in meeting on this node (--same-node=sockets): it finds the
// pods, divides the sockets among namespaces, sweeps, and destroys revoked sockets.
package samenode

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/value"
)

// Mode says how pods of one node that opted in exchange TCP data.
type Mode string

// The modes.
const (
	// ModeOff is by packets, as with all others.
	ModeOff Mode = "off"
	// ModeSockets is from socket to socket. It is experimental.
	ModeSockets Mode = "sockets"
)

// Config is the configuration of same-node sockets.
type Config struct {
	SameNode Mode
	// SameNodeMax is how many sockets may meet at a time.
	SameNodeMax int
}

// Defaults is the configuration without flags.
func Defaults() Config { return Config{SameNode: ModeOff, SameNodeMax: 16384} }

// Validate reports every impossible value, each with the name of its flag.
func (c Config) Validate() error {
	return errors.Join(
		value.OneOf("--same-node", c.SameNode, ModeOff, ModeSockets),
		value.Between("--same-node-max", c.SameNodeMax, 2, value.MaxTableSize))
}
