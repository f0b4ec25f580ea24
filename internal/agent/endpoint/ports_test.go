package endpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// No pod gets a port of the agent's probes or of tunnels.
func TestOwnPorts(t *testing.T) {
	e := &Endpoints{Options: Options{Config: node.Defaults(), LB: lb.Defaults(), MetricsAddress: "127.0.0.1:9965"}}
	e.Config.NodeName = "n1"
	for mapping, flag := range map[agentapi.PortMapping]string{
		{HostPort: 9965, ContainerPort: 80, Protocol: "tcp"}:  "--metrics-address",
		{HostPort: 10256, ContainerPort: 80, Protocol: "tcp"}: "--healthz-address",
		{HostPort: 4789, ContainerPort: 80, Protocol: "udp"}:  "--tunnel-port",
		{HostPort: 9965, ContainerPort: 80, Protocol: "udp"}:  "",
		{HostPort: 4789, ContainerPort: 80, Protocol: "tcp"}:  "",
		{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}:  "",
	} {
		err := e.checkPorts(agentapi.Endpoint{PortMappings: []agentapi.PortMapping{mapping}})
		var coded *agentapi.Error
		if flag == "" && err != nil || flag != "" && (!errors.As(err, &coded) || coded.Code != agentapi.CodePortTaken || !strings.Contains(err.Error(), flag)) {
			t.Errorf("%+v: %v, want one that names %q", mapping, err, flag)
		}
	}
}

// Only pods with host ports are the subject of problems of host ports.
func TestHostPortPods(t *testing.T) {
	pod := agentapi.PodRef{Namespace: "shop", Name: "pod", UID: "u3"}
	e := &Endpoints{all: map[string]agentapi.Endpoint{
		"bl1": {Pod: pod, PortMappings: []agentapi.PortMapping{{HostPort: 80}}},
		"bl2": {Pod: agentapi.PodRef{Namespace: "shop", Name: "other"}},
	}}
	if got := e.HostPortPods(); len(got) != 1 || got[cluster.Key{Namespace: "shop", Name: "pod"}] != pod.UID {
		t.Errorf("pods are %v", got)
	}
}
