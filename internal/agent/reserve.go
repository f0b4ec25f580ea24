package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// reserved is what the agent has taken from the node's own sockets, so that uninstall gives back exactly that.
type reserved struct {
	// Ports are the requested range, Added the parts of it that were not reserved before.
	Ports value.PortRange   `json:"ports"`
	Added []localport.Range `json:"added"`
	// Local is the former range of ephemeral ports, Beside the one that replaced it. Zero: it was not changed.
	Local  localport.Range `json:"local"`
	Beside localport.Range `json:"beside"`
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

// reservePorts keeps the node's own sockets off the ports that NAT allocates. It writes down what it is about to take
// first.
//
// From a reserved port the kernel goes on to the next one that is not reserved (udp_lib_get_port,
// __inet_hash_connect). Where most ephemeral ports are reserved, most sockets would get the first port behind them:
// after a long search, and easy to guess for an attacker who forges replies. So the range of ephemeral ports is moved
// instead.
func (a *Agent) reservePorts() error {
	if !a.config.Masquerade && a.paths.services != lb.ModeEBPF {
		return releasePorts(a.config.StateDir)
	}
	now := a.config.NATPorts
	before, err := loadReserved(a.config.StateDir)
	if err != nil {
		a.log.Warn("reservations of earlier agents are not given back", "error", err)
	}
	if before.Ports != now {
		if err := releasePorts(a.config.StateDir); err != nil {
			return err
		}
		before = reserved{}
	}
	add, err := localport.Unreserved(localport.Range(now))
	if err != nil {
		return err
	}
	local, err := localport.Ephemeral()
	if err != nil {
		return err
	}
	beside := local.Outside(localport.Range(now))
	if len(add) == 0 && beside == local {
		return nil
	}
	// Both are parts of now; a part that is in both was removed from the list by another program meanwhile.
	taken := reserved{Ports: now, Added: localport.Join(append(before.Added, add...)), Local: before.Local, Beside: before.Beside}
	if beside != local {
		taken.Local, taken.Beside = local, beside
	}
	if err := taken.save(a.config.StateDir); err != nil {
		return err
	}
	return a.takePorts(local, beside)
}

// takePorts reserves the ports of NAT, and makes `beside` the range of ephemeral ports instead of `local`.
func (a *Agent) takePorts(local, beside localport.Range) error {
	added, err := localport.Reserve(localport.Range(a.config.NATPorts))
	if err != nil {
		return err
	}
	if beside != local {
		if err := localport.SetEphemeral(beside); err != nil {
			return err
		}
	}
	a.log.Info("ports reserved for NAT", "ports", a.config.NATPorts.String(), "added", added, "sockets", value.PortRange(beside).String())
	return nil
}

// releasePorts gives back what agents with this state directory have reserved.
func releasePorts(stateDir string) error {
	r, err := loadReserved(stateDir)
	if err != nil || len(r.Added) == 0 && r.Beside == (localport.Range{}) {
		return err
	}
	if err := localport.Release(r.Added); err != nil {
		return err
	}
	local, err := localport.Ephemeral()
	if err != nil {
		return err
	}
	if local == r.Beside { // else another program has changed it
		if err := localport.SetEphemeral(r.Local); err != nil {
			return err
		}
	}
	if err := os.Remove(reservedFile(stateDir)); err != nil {
		return fmt.Errorf("forget which ports were reserved: %w", err)
	}
	return nil
}
