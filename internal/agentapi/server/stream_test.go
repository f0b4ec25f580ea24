package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// A stream's lines arrive one by one; the agent ends the response.
func TestStream(t *testing.T) {
	service := &echo{}
	client, _ := start(t, service)
	var got []uint64
	err := client.FollowFlows(context.Background(), agentapi.FlowFilter{To: "10.0.0.0/8", Last: 3}, func(line agentapi.FlowLine) error {
		got = append(got, line.Missed)
		return nil
	})
	if !errors.Is(err, agentapi.ErrNoAgent) {
		t.Errorf("at its end: got %v, want ErrNoAgent", err)
	}
	if diff := cmp.Diff([]uint64{4, 5}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{agentapi.FlowFilter{To: "10.0.0.0/8", Last: 3}}, service.got); diff != "" {
		t.Errorf("arrived (-want +got):\n%s", diff)
	}
}

// Errors before the first line are like those of other requests; the client's own error ends the stream.
func TestStreamErrors(t *testing.T) {
	service := &echo{err: fmt.Errorf("filter: %w", agentapi.Errorf(agentapi.CodeInvalid, "what is that?"))}
	client, _ := start(t, service)
	err := client.FollowFlows(context.Background(), agentapi.FlowFilter{}, func(agentapi.FlowLine) error { return nil })
	if !agentapi.HasCode(err, agentapi.CodeInvalid) || err.Error() != "filter: what is that?" {
		t.Errorf("refused: got %v", err)
	}
	service.err = nil
	enough := errors.New("enough")
	if err := client.FollowFlows(context.Background(), agentapi.FlowFilter{}, func(agentapi.FlowLine) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the error of the client", err)
	}
}

// followed is a service whose stream has one line and continues until the client leaves.
type followed struct {
	echo
	left chan struct{}
}

func (f *followed) FollowFlows(ctx context.Context, _ agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	defer close(f.left)
	if err := each(agentapi.FlowLine{Missed: 1}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// A client that is interrupted leaves at once, and the service notices.
func TestStreamInterrupted(t *testing.T) {
	service := &followed{left: make(chan struct{})}
	client, _ := start(t, service)
	ctx, interrupt := context.WithCancel(context.Background())
	err := client.FollowFlows(ctx, agentapi.FlowFilter{}, func(agentapi.FlowLine) error {
		interrupt()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	<-service.left
}
