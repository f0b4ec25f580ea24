package cni_test

import (
	"context"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

func TestGarbageCollection(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	var valid []types.GCAttachment
	for _, name := range []string{"keep", "drop"} {
		rt, _ := b.pod(name)
		// Not through libcni, whose cache would DEL what it knows before it calls GC.
		if e := b.execute("ADD", rt, string(b.single(list))); e.Code != 0 {
			t.Fatal(e)
		}
		if name == "keep" {
			valid = append(valid, types.GCAttachment{ContainerID: rt.ContainerID, IfName: rt.IfName})
		}
	}
	gc := func(valid []types.GCAttachment) {
		t.Helper()
		if err := b.do(func() error {
			return b.cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{ValidAttachments: valid})
		}); err != nil {
			t.Fatal(err)
		}
	}
	gc(valid)
	if _, kept := b.agent.known()[agentapi.Attachment{ContainerID: "keep", IfName: "eth0"}]; !kept || len(b.agent.known()) != 1 {
		t.Errorf("endpoints after GC: %v", b.agent.known())
	}
	gc(nil)
	b.expectEmpty()
}

// single is the configuration that a runtime passes to the plugin.
func (b *bench) single(list *libcni.NetworkConfigList) []byte {
	b.t.Helper()
	c, err := libcni.InjectConf(list.Plugins[0], map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Bytes
}
