// Package plugin runs CNI plugins on a node of a lab, as a container runtime does on its own.
package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Executor runs plugins in a namespace: it is the invoke.Exec that libcni calls them by.
type Executor struct {
	version.PluginDecoder
	// Netns is where plugins run: the network namespace and the cgroup of a node.
	Netns testbed.Netns
	// Ran, if set, is called after each call with the plugin's environment, which has its command, and the time from
	// the start of its process to its end, the plugins that it calls included.
	Ran func(ctx context.Context, environ []string, took time.Duration)
}

// ExecPlugin is part of invoke.Exec. The error of a plugin that fails in order is a *types.Error.
func (e *Executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := e.Netns.Run(cmd)
	if e.Ran != nil {
		e.Ran(ctx, environ, time.Since(start))
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	// A plugin that fails in order says why in an error object on its standard output.
	var said types.Error
	if json.Unmarshal(stdout.Bytes(), &said) == nil && said.Msg != "" {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), &said)
	}
	return nil, fmt.Errorf("run %s: %w: %s", filepath.Base(path), err, strings.TrimSpace(stderr.String()))
}

// FindInPath is part of invoke.Exec.
func (e *Executor) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// Addresses are those that a pod has by the result of ADD, IPv4 first.
func Addresses(result *types100.Result) []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, a.Unmap())
		}
	}
	slices.SortStableFunc(addresses, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addresses
}
