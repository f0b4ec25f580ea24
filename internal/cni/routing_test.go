package cni

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// The request says why a pod goes through the host's stack, and nothing for a pod that does not.
func TestAddReportsWhyThroughStack(t *testing.T) {
	const mapping, limit = `"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`, `"bandwidth":{"ingressRate":1000000,"ingressBurst":1000}`
	tests := map[string]struct{ more, want string }{
		"nothing asked for":                 {``, ""},
		"capabilities unused":               {`,"capabilities":{"portMappings":true,"bandwidth":true}`, ""},
		"empty":                             {`,"runtimeConfig":{"portMappings":[],"bandwidth":{}}`, ""},
		"null":                              {`,"runtimeConfig":{"portMappings":null,"bandwidth":null}`, ""},
		"bursts without rates":              {`,"runtimeConfig":{"bandwidth":{"ingressRate":0,"ingressBurst":1000,"egressRate":0,"egressBurst":1000}}`, ""},
		"another capability":                {`,"runtimeConfig":{"dns":{"servers":["10.0.0.10"]}}`, ""},
		"a port, which is the agent's":      {`,"runtimeConfig":{` + mapping + `}`, ""},
		"a limit of what it receives":       {`,"runtimeConfig":{` + limit + `}`, ""},
		"a limit of what it sends":          {`,"runtimeConfig":{"bandwidth":{"egressRate":1e6,"egressBurst":1000}}`, ""},
		"both":                              {`,"runtimeConfig":{` + mapping + `,` + limit + `}`, ""},
		"the network":                       {`,"routing":"kernel"`, "routing of network pods"},
		"the network before its pods":       {`,"routing":"kernel","runtimeConfig":{` + mapping + `}`, "routing of network pods"},
		"the network wants it direct":       {`,"routing":"ebpf"`, ""},
		"the network wants it direct still": {`,"routing":"ebpf","runtimeConfig":{` + mapping + `,` + limit + `}`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFakeNode()
			if err := w.plugin().Add(args(conf(test.more))); err != nil {
				t.Fatal(err)
			}
			if got := w.added[0].ThroughStack; got != test.want {
				t.Errorf("says %q, want %q", got, test.want)
			}
		})
	}
}

// The agent chooses the kind of device, unless the network does or the pod has a limit.
func TestAddRequestsADevice(t *testing.T) {
	const limit = `,"runtimeConfig":{"bandwidth":{"ingressRate":1000000,"ingressBurst":1000}}`
	for name, test := range map[string]struct{ more, want string }{
		"nothing asked for":           {``, ""},
		"the network":                 {`,"device":"netkit"`, "netkit"},
		"a limit":                     {limit, "veth"},
		"a limit, and the network's":  {`,"device":"netkit"` + limit, "netkit"},
		"the capability, not a limit": {`,"capabilities":{"bandwidth":true}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeNode()
			if err := w.plugin().Add(args(conf(test.more))); err != nil {
				t.Fatal(err)
			}
			if got := w.prepared[0].Device; got != test.want {
				t.Errorf("requests %q, want %q", got, test.want)
			}
		})
	}
}

// The agent gets the limits of the pod, without bursts.
func TestAddRequestsLimits(t *testing.T) {
	for more, want := range map[string]agentapi.Bandwidth{
		``: {},
		`,"runtimeConfig":{"bandwidth":{"ingressRate":0,"egressBurst":1000}}`:                                               {},
		`,"runtimeConfig":{"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":2e9,"egressBurst":1}}`: {Egress: 2e9, Ingress: 1e6},
	} {
		w := newFakeNode()
		if err := w.plugin().Add(args(conf(more))); err != nil {
			t.Fatal(err)
		}
		if got := w.added[0].Bandwidth; got != want {
			t.Errorf("%s: limits %+v, want %+v", more, got, want)
		}
	}
}
