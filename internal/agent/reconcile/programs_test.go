package reconcile

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
)

// Programs of an earlier agent wait for Services, but no longer than pods can wait.
func TestProgramsWaitForServices(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	r := &Reconciler{Options: Options{Services: lb.New(lb.Defaults(), nil, lb.Hooks{}, &loop.Beat{}, log), Log: log}, servicesLost: true, started: time.Now()}
	if err := r.attachPrograms(node.Desired{}); !errors.Is(err, errServicesMissing) {
		t.Errorf("programs do not wait for Services: %v", err)
	}
	if err := r.missesServices(r.started.Add(servicesPatience)); err != nil {
		t.Errorf("programs wait for Services for longer than pods can: %v", err)
	}
	if r.servicesLost {
		t.Error("each reconciliation warns that programs are replaced")
	}
}

// Programs of an earlier agent wait for policies, without which pods would be open.
func TestProgramsWaitForPolicies(t *testing.T) {
	policies := agentpolicy.New(agentpolicy.Options{Config: agentpolicy.Defaults()}, nil, slog.New(slog.DiscardHandler))
	r := &Reconciler{Options: Options{Policies: policies}, policiesLost: true}
	if err := r.attachPrograms(node.Desired{}); !errors.Is(err, errPoliciesMissing) {
		t.Errorf("programs do not wait for policies: %v", err)
	}
}
