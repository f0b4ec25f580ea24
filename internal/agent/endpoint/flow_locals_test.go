package endpoint

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/flow"
)

// Flows name both sandboxes of a pod by the pod.
func TestFlowsOfTwoSandboxes(t *testing.T) {
	sandbox := func(container, address string) agentapi.Endpoint {
		return agentapi.Endpoint{
			Attachment: agentapi.Attachment{ContainerID: container}, Pod: agentapi.PodRef{Namespace: "shop", Name: "web"}, Addresses: []netip.Addr{netip.MustParseAddr(address)},
		}
	}
	e := &Endpoints{all: map[string]agentapi.Endpoint{"bl1": sandbox("c1", "10.1.1.2"), "bl2": sandbox("c2", "10.1.1.3")}}
	names := flow.NewNames("a")
	names.SetLocals(e.FlowLocals())
	for _, address := range []string{"10.1.1.2", "10.1.1.3"} {
		event := flow.Event{Kind: flow.KindClosed, Source: netip.MustParseAddrPort(address + ":40000"), Destination: netip.MustParseAddrPort("10.1.2.2:53"), Protocol: 17}
		record := names.Record(event)
		if f := record.Flow(); (cluster.Key{Namespace: f.Source.Namespace, Name: f.Source.Name}) != (cluster.Key{Namespace: "shop", Name: "web"}) {
			t.Errorf("flow %+v", f)
		}
	}
}
