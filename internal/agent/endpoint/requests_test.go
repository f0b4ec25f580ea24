package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Requests of clients that gave up are not executed: the plugin has undone them, and the runtime may have sent others
// since.
func TestRequestsOfClientsThatGaveUp(t *testing.T) {
	e := &Endpoints{Options: Options{Lock: &sync.Mutex{}, Log: slog.New(slog.DiscardHandler)}, all: map[string]agentapi.Endpoint{"bl1": {Network: "pods"}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pod := agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}
	for name, err := range map[string]error{
		"GC":     e.GC(ctx, agentapi.GCRequest{Network: "pods"}),
		"DELETE": e.Delete(ctx, agentapi.DeleteRequest{Attachment: pod}),
		"ADD": func() error {
			_, _, err := e.add(ctx, agentapi.AddRequest{Endpoint: agentapi.Endpoint{Attachment: pod, HostDevice: "bl1", HostIfIndex: 4}})
			return err
		}(),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(e.all) != 1 {
		t.Errorf("endpoints are %v", e.all)
	}
}

// An ADD that fails late leaves the endpoint of a later ADD of the same container as it is.
func TestFailedAddKeepsLaterEndpoint(t *testing.T) {
	later := agentapi.Endpoint{HostDevice: "bl1", HostIfIndex: 5}
	e := &Endpoints{Options: Options{Lock: &sync.Mutex{}}, all: map[string]agentapi.Endpoint{"bl1": later}}
	if err := e.undo(agentapi.Endpoint{HostDevice: "bl1", HostIfIndex: 4}); err != nil {
		t.Error(err)
	}
	if e.all["bl1"].HostIfIndex != later.HostIfIndex {
		t.Errorf("endpoints are %v", e.all)
	}
}
