package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/device"
)

// reserved is what the agent has taken from the node's own sockets, so that uninstalling gives back that and no more.
type reserved struct {
	// Ports are the range that was asked for, Added the parts of it that nobody had reserved before.
	Ports PortRange         `json:"ports"`
	Added []device.PortSpan `json:"added"`
}

func reservedFile(stateDir string) string { return filepath.Join(stateDir, "reserved-ports.json") }

func loadReserved(stateDir string) (r reserved, err error) {
	data, err := os.ReadFile(reservedFile(stateDir))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read which ports are reserved: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read which ports are reserved: %w", err)
	}
	return r, nil
}

func (r reserved) save(stateDir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode which ports are reserved: %w", err)
	}
	path := reservedFile(stateDir)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("write which ports are reserved: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// reservePorts keeps the node's own sockets off the ports that translation gives. What is about to be taken is written down before.
func (a *Agent) reservePorts() error {
	if !a.config.Masquerade && a.ways.services != ServicesEBPF {
		return releasePorts(a.config.StateDir)
	}
	now := a.config.NATPorts
	before, err := loadReserved(a.config.StateDir)
	if err != nil {
		a.log.Warn("what earlier agents have reserved is not given back", "error", err)
	}
	if before.Ports != now && len(before.Added) > 0 {
		if err := releasePorts(a.config.StateDir); err != nil {
			return err
		}
		before = reserved{}
	}
	add, err := device.UnreservedPorts(device.PortSpan(now))
	if err != nil || len(add) == 0 {
		return err
	}
	// Both are parts of now; what is in both, somebody else has taken off the list meanwhile.
	if err := (reserved{now, device.JoinSpans(append(before.Added, add...))}).save(a.config.StateDir); err != nil {
		return err
	}
	added, err := device.ReservePorts(device.PortSpan(now))
	if err == nil {
		a.log.Info("ports are reserved for translation", "ports", now.String(), "added", added)
	}
	return err
}

// releasePorts gives back what agents with this state directory have reserved.
func releasePorts(stateDir string) error {
	r, err := loadReserved(stateDir)
	if err != nil || len(r.Added) == 0 {
		return err
	}
	if err := device.ReleasePorts(r.Added); err != nil {
		return err
	}
	if err := os.Remove(reservedFile(stateDir)); err != nil {
		return fmt.Errorf("forget which ports were reserved: %w", err)
	}
	return nil
}
