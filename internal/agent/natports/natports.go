// Package natports keeps the node's own sockets off the ports that NAT allocates.
package natports

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// Reserved is what the agent has taken from the node's own sockets, so that uninstall gives back exactly that.
type Reserved struct {
	// Ports are the requested range, Added the parts of it that were not reserved before.
	Ports value.PortRange   `json:"ports"`
	Added []localport.Range `json:"added"`
	// Local is the former range of ephemeral ports, Beside the one that replaced it. Zero: it was not changed.
	Local  localport.Range `json:"local"`
	Beside localport.Range `json:"beside"`
}

func reservedFile(stateDir string) string { return filepath.Join(stateDir, "reserved-ports.json") }

// Load reads what agents with this state directory have reserved.
func Load(stateDir string) (r Reserved, err error) {
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

func (r Reserved) save(stateDir string) error {
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

// Reserve keeps the node's own sockets off the ports that NAT allocates, while anything is translated. It writes down what it is about to take
// first.
//
// From a reserved port the kernel goes on to the next one that is not reserved (udp_lib_get_port,
// __inet_hash_connect). Where most ephemeral ports are reserved, most sockets would get the first port behind them:
// after a long search, and easy to guess for an attacker who forges replies. So the range of ephemeral ports is moved
// instead.
func Reserve(stateDir string, now value.PortRange, translates bool, log *slog.Logger) error {
	if !translates {
		return Release(stateDir)
	}
	before, err := Load(stateDir)
	if err != nil {
		log.Warn("reservations of earlier agents are not given back", "error", err)
	}
	if before.Ports != now {
		if err := Release(stateDir); err != nil {
			return err
		}
		before = Reserved{}
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
	taken := Reserved{Ports: now, Added: localport.Join(append(before.Added, add...)), Local: before.Local, Beside: before.Beside}
	if beside != local {
		taken.Local, taken.Beside = local, beside
	}
	if err := taken.save(stateDir); err != nil {
		return err
	}
	return take(now, local, beside, log)
}

// take reserves the ports of NAT, and makes `beside` the range of ephemeral ports instead of `local`.
func take(now value.PortRange, local, beside localport.Range, log *slog.Logger) error {
	added, err := localport.Reserve(localport.Range(now))
	if err != nil {
		return err
	}
	if beside != local {
		if err := localport.SetEphemeral(beside); err != nil {
			return err
		}
	}
	log.Info("ports reserved for NAT", "ports", now.String(), "added", added, "sockets", value.PortRange(beside).String())
	return nil
}

// Release gives back what agents with this state directory have reserved.
func Release(stateDir string) error {
	r, err := Load(stateDir)
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
