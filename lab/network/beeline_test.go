package network

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/policies"
)

// The agent of one node ends and begins anew, and the other's goes on.
func TestRestartOfAnAgent(t *testing.T) {
	testenv.Root(t)
	ctx := t.Context()
	lab := bareLab(t, "t-restart")
	server, _, err := ServeObjects(ctx, lab)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := beelinePolicy(policies.None, "")
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	if err := server.Put(policies.Namespace(policies.Default, nil)); err != nil {
		t.Fatal(err)
	}
	if err := c.Up(ctx, lab); err != nil {
		t.Fatal(err)
	}
	node := lab.Node(0)
	before, between := AgentPID(c, node), 0
	if err := c.Restart(ctx, lab, node, func() error {
		between = AgentPID(c, node)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if after := AgentPID(c, node); before == 0 || between != 0 || after == 0 || after == before {
		t.Errorf("the agent was %d, %d and is %d", before, between, after)
	}
}
