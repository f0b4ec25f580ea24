package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Caller does what a CNI plugin does, with the variables of its environment (CNI_COMMAND, CNI_NETNS, …). It returns the result
// of ADD.
type Caller func(ctx context.Context, environ map[string]string) ([]byte, error)

// callVersion is the CNI version of results of a Caller.
const callVersion = "1.0.0"

// CallNetwork is a network on a node whose calls go to a function in place of plugins.
func CallNetwork(n *testbed.Node, name string, call Caller) (Network, error) {
	conf, err := json.Marshal(map[string]any{"cniVersion": callVersion, "name": name, "plugins": []map[string]any{{"type": name}}})
	if err != nil {
		return Network{}, fmt.Errorf("encode CNI configuration: %w", err)
	}
	return readNetwork(n, nil, conf, &caller{call: call})
}

// caller passes the calls of libcni to a function: it is an invoke.Exec.
type caller struct {
	version.PluginDecoder
	call Caller
}

// ExecPlugin is part of invoke.Exec.
func (c *caller) ExecPlugin(ctx context.Context, _ string, _ []byte, environ []string) ([]byte, error) {
	all, start := variables(environ), time.Now()
	said, err := c.call(ctx, all)
	observed(ctx, all["CNI_COMMAND"], start)
	return said, err
}

// FindInPath is part of invoke.Exec. There is nothing to find.
func (*caller) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }
