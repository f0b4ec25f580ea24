package main

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// The table has the path of each pod's packets, and the reason.
func TestEndpointsPath(t *testing.T) {
	var out strings.Builder
	err := printEndpoints(&out, []agentapi.Endpoint{
		{Pod: agentapi.PodRef{Namespace: "default", Name: "fast"}, State: agentapi.StateReady},
		{Pod: agentapi.PodRef{Namespace: "default", Name: "mapped"}, ThroughStack: "port mapping", State: agentapi.StateReady},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, word := range []string{"PATH", "ebpf", "kernel (port mapping)"} {
		if len(lines) != 3 || !strings.Contains(lines[i], word) {
			t.Errorf("no %q in line %d of\n%s", word, i+1, &out)
		}
	}
}

// The wide table has the kind of each pod's device, and its IPPool.
func TestEndpointsWide(t *testing.T) {
	var out strings.Builder
	err := printEndpoints(&out, []agentapi.Endpoint{
		{Pod: agentapi.PodRef{Namespace: "default", Name: "web"}, Device: "netkit", Pool: "office", State: agentapi.StateReady},
	}, true)
	if text := out.String(); err != nil || !strings.Contains(text, "KIND") || !strings.Contains(text, "netkit") || !strings.Contains(text, "office") {
		t.Errorf("%v, %s", err, text)
	}
}
