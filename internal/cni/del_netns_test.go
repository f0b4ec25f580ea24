package cni_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestNoAgent(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	rt, _ := b.pod("web")
	if _, err := b.add(list, rt); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Close(); err != nil {
		t.Fatal(err)
	}

	late, _ := b.pod("late")
	_, err := b.add(list, late)
	wantCode(t, err, types.ErrTryAgainLater, "the beeline agent is not running")
	wantCode(t, b.check(list, rt), types.ErrTryAgainLater, "not running")
	err = b.do(func() error { return b.cni.GetStatusNetworkList(context.Background(), list) })
	wantCode(t, err, types.ErrPluginNotAvailable, "no agent responds")
	for range 2 {
		if err := b.del(list, rt); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	// The agent is back and drops endpoints without a device.
	if err := b.agent.Delete(context.Background(), agentapi.DeleteRequest{Attachment: agentapi.Attachment{ContainerID: "web", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
	b.expectEmpty()
}

func TestNamespaceGoneBeforeDel(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	for _, clear := range []bool{false, true} {
		rt, netns := b.pod(fmt.Sprint("web", clear))
		if _, err := b.add(list, rt); err != nil {
			t.Fatal(err)
		}
		netns.Close()
		if err := testenv.RemoveNetns(netns.Path()); err != nil {
			t.Fatal(err)
		}
		if clear {
			rt.NetNS = "" // what a runtime passes that knows
		}
		if err := b.del(list, rt); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	b.expectEmpty()
}
