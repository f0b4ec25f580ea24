package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestTwoFilesClaimOneAddress adds endpoint files with a pod's address and a device that does not exist. After a
// restart of the agent the pod keeps its address, and the node is ready.
func TestTwoFilesClaimOneAddress(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	p := c.addPods()
	n := c.nodes[0]
	c.kill(n)
	for _, name := range []string{"bl0000000000000", "blfffffffffffff"} { // sorted before and after the pod's file
		data, err := json.Marshal(agentapi.Endpoint{HostDevice: name, HostIfIndex: 4711, Addresses: p.a.Addresses})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.stateDir(), "endpoints", name+".json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.start(n, current(t))
	c.waitReady(n)
	endpoints, err := n.api().Endpoints(t.Context())
	if err != nil || len(endpoints) != 2 {
		t.Errorf("endpoints are %+v, %v; want those of a and b", endpoints, err)
	}
	if err := c.reach(p.far, p.a); err != nil {
		t.Error(err)
	}
}
