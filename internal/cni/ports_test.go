package cni

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// The request to the agent has the port mappings of the runtime.
func TestAddRequestsPorts(t *testing.T) {
	w := newFakeNode()
	err := w.plugin().Add(args(conf(`,"routing":"ebpf","runtimeConfig":{"portMappings":[
		{"hostPort":8080,"containerPort":80,"protocol":"tcp"},
		{"hostPort":53,"containerPort":5353,"protocol":"UDP","hostIP":"192.0.2.1"},
		{"hostPort":53,"containerPort":5353,"hostIP":"::"},
		{"hostPort":36412,"containerPort":36412,"protocol":"sctp","hostIP":"::ffff:192.0.2.1"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	ours := netip.MustParseAddr("192.0.2.1")
	want := []agentapi.PortMapping{
		{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"},
		{HostPort: 53, ContainerPort: 5353, Protocol: "UDP", HostIP: ours},
		{HostPort: 53, ContainerPort: 5353, Protocol: "TCP", HostIP: netip.IPv6Unspecified()},
		{HostPort: 36412, ContainerPort: 36412, Protocol: "SCTP", HostIP: ours},
	}
	if diff := cmp.Diff(want, w.added[0].PortMappings, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if !w.added[0].Direct {
		t.Error("the request has no direct path for the network's pods")
	}
}

func TestAddRejectsPorts(t *testing.T) {
	for mapping, want := range map[string]string{
		`{"hostPort":0,"containerPort":80}`:                              `portMappings[0].hostPort": 0 is not a port`,
		`{"hostPort":80,"containerPort":70000}`:                          `portMappings[0].containerPort": 70000 is not a port`,
		`{"hostPort":80}`:                                                `portMappings[0].containerPort": 0 is not a port`,
		`{"hostPort":80,"containerPort":80,"protocol":"icmp"}`:           `"icmp" is none of TCP, UDP, SCTP`,
		`{"hostPort":80,"containerPort":80,"hostIP":"node"}`:             `"node" is not an address`,
		`{"hostPort":80,"containerPort":80},{"hostPort":81}`:             `portMappings[1].containerPort"`,
		`{"hostPort":80,"containerPort":80,"hostIP":"10.0.0.0/8"}`:       `"10.0.0.0/8" is not an address`,
		`{"hostPort":80,"containerPort":"80"}`:                           `runtimeConfig.portMappings`,
		`{"hostPort":80,"containerPort":80,"protocol":"tcp","hostIP":4}`: `runtimeConfig.portMappings`,
	} {
		w := newFakeNode()
		err := w.plugin().Add(args(conf(`,"runtimeConfig":{"portMappings":[` + mapping + `]}`)))
		var cniErr *types.Error
		if !errors.As(err, &cniErr) || cniErr.Code != types.ErrInvalidNetworkConfig || !strings.Contains(cniErr.Msg, want) {
			t.Errorf("%s: error is %v", mapping, err)
		}
		if len(w.steps) != 0 {
			t.Errorf("%s: did %v", mapping, w.steps)
		}
	}
}
