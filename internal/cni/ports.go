package cni

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// portMappings returns the hostPorts of the pod (capability "portMappings").
func (c *config) portMappings() ([]agentapi.PortMapping, error) {
	var requested []struct {
		HostPort      int    `json:"hostPort"`
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
		HostIP        string `json:"hostIP"`
	}
	if err := c.capability("portMappings", &requested); err != nil {
		return nil, err
	}
	var mappings []agentapi.PortMapping
	for i, a := range requested {
		fail := func(field, format string, args ...any) error {
			return invalidConfig(fmt.Sprintf("field \"runtimeConfig.portMappings[%d].%s\": ", i, field) + fmt.Sprintf(format, args...))
		}
		if !isPort(a.HostPort) {
			return nil, fail("hostPort", "%d is not a port", a.HostPort)
		}
		if !isPort(a.ContainerPort) {
			return nil, fail("containerPort", "%d is not a port", a.ContainerPort)
		}
		m := agentapi.PortMapping{HostPort: uint16(a.HostPort), ContainerPort: uint16(a.ContainerPort), Protocol: strings.ToUpper(a.Protocol)}
		if m.Protocol == "" {
			m.Protocol = "TCP"
		}
		if !slices.Contains(agentapi.Protocols, m.Protocol) {
			return nil, fail("protocol", "%q is none of %s", a.Protocol, strings.Join(agentapi.Protocols, ", "))
		}
		if a.HostIP != "" {
			ip, err := netip.ParseAddr(a.HostIP)
			if err != nil {
				return nil, fail("hostIP", "%q is not an address", a.HostIP)
			}
			m.HostIP = ip.Unmap()
		}
		mappings = append(mappings, m)
	}
	return mappings, nil
}

func isPort(n int) bool { return n > 0 && n <= 65535 }
