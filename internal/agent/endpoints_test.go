package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Requests of clients that gave up are not executed: the plugin has undone them, and the runtime may have sent others
// since.
func TestRequestsOfClientsThatGaveUp(t *testing.T) {
	a := &Agent{log: slog.New(slog.DiscardHandler), endpoints: map[string]agentapi.Endpoint{"bl1": {Network: "pods"}}}
	a.metrics = newMetrics(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pod := agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}
	for name, err := range map[string]error{
		"GC":     a.GC(ctx, agentapi.GCRequest{Network: "pods"}),
		"DELETE": a.Delete(ctx, agentapi.DeleteRequest{Attachment: pod}),
		"ADD": func() error {
			_, _, err := a.add(ctx, agentapi.AddRequest{Attachment: pod, HostDevice: "bl1", HostIfIndex: 4})
			return err
		}(),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(a.endpoints) != 1 {
		t.Errorf("endpoints are %v", a.endpoints)
	}
}
