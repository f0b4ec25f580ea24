package install

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// cniVersion is the newest that all container runtimes in use support; the plugins support newer ones.
const cniVersion = "1.0.0"

type conflist struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type         string          `json:"type"`
	AgentSocket  string          `json:"agentSocket,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
}

// renderConflist gives the CNI configuration. The runtime passes host ports (hostPort) and bandwidth limits to the
// plugin; the agent translates the ports, or else portmap, the next plugin.
func renderConflist(socket string, portMap bool) ([]byte, error) {
	ports := map[string]bool{"portMappings": true}
	plugins := []plugin{{Type: Plugin, AgentSocket: socket, Capabilities: map[string]bool{"portMappings": true, "bandwidth": true}}}
	if portMap {
		plugins = append(plugins, plugin{Type: PortMap, Capabilities: ports})
	}
	text, err := json.MarshalIndent(conflist{CNIVersion: cniVersion, Name: "beeline", Plugins: plugins}, "", "  ")
	return append(text, '\n'), err
}

// before finds the configurations that the runtime prefers to ours.
func before(dir string) (problems []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for other networks: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() && isConfiguration(e.Name()) && e.Name() < Conflist {
			problems = append(problems, fmt.Sprintf("%s sorts before %s in the directory of CNI configurations: the container runtime takes that network "+
				"for new pods and not this one; remove the file if it is left over", e.Name(), Conflist))
		}
	}
	return problems, nil
}

// isConfiguration reports whether libcni reads a file of this name.
func isConfiguration(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}
