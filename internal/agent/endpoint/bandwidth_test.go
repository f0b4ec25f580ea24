package endpoint

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// The annotations of a pod limit its first interface, if they have a meaning. Others, and pods that may be other ones, keep what they have.
func TestAnnotated(t *testing.T) {
	const uid = "0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02"
	limits := &cluster.Bandwidth{Egress: 8e6, Ingress: 1e6}
	for name, test := range map[string]struct {
		uid, ifName string
		annotations *cluster.Bandwidth
		want        agentapi.Bandwidth
		known       bool
	}{
		"limits":              {uid, "eth0", limits, agentapi.Bandwidth{Egress: 8e6, Ingress: 1e6}, true},
		"none":                {uid, "eth0", nil, agentapi.Bandwidth{}, true},
		"invalid":             {uid, "eth0", &cluster.Bandwidth{Invalid: true}, agentapi.Bandwidth{}, false},
		"no UID":              {"", "eth0", limits, agentapi.Bandwidth{}, false},
		"another UID":         {"4e0f7f5c-6f7a-4f3e-8a43-3a4b6f0f2d11", "eth0", limits, agentapi.Bandwidth{}, false},
		"a further interface": {uid, "net1", limits, agentapi.Bandwidth{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := agentapi.Endpoint{Attachment: agentapi.Attachment{ContainerID: "c", IfName: test.ifName}, Pod: agentapi.PodRef{Namespace: "default", Name: "web", UID: test.uid}}
			pod := &cluster.Pod{Namespace: "default", Name: "web", UID: cluster.NewUID(uid), Bandwidth: test.annotations}
			got, known := annotated(p, cluster.ListOf(pod))
			if known != test.known || known && got != test.want {
				t.Errorf("limits %+v, known %t; want %+v, %t", got, known, test.want, test.known)
			}
			all := &Endpoints{all: map[string]agentapi.Endpoint{"bl1": p}}
			plain := *pod
			plain.Bandwidth = nil
			if got := all.BandwidthChanges(cluster.ListOf(&plain), cluster.ListOf(pod)); got != (known && test.want != agentapi.Bandwidth{}) {
				t.Errorf("a reason to change limits: %t", got)
			}
		})
	}
}
