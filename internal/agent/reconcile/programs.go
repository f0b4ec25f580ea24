package reconcile

import (
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/node"
)

// errServicesMissing keeps the programs of an earlier agent attached.
var errServicesMissing = errors.New("programs with other tables of Services wait for the cluster's Services, without which connections to them would fail")

// applyServices hands over the state of the node. When the agent starts, it waits for Services that are synced
// already.
func (r *Reconciler) applyServices(want node.Desired) {
	if r.Services == nil {
		return
	}
	r.Services.UpdateHostPorts(r.Endpoints.HostPorts())
	r.Services.UpdateNode(want.Services)
	if !r.Services.Status().Synced {
		_ = r.Services.Pass() // errors are in the outcome
	}
}

// attachPrograms attaches programs to devices and sockets. If an earlier agent has left programs that translate
// Services, but not their tables, these stay until the new tables are filled. Otherwise nothing is lost by Services
// that come later.
func (r *Reconciler) attachPrograms(want node.Desired) error {
	if err := r.missesServices(time.Now()); err != nil {
		return err
	}
	if r.policiesLost && !r.Policies.Filled() {
		return errPoliciesMissing
	}
	return r.Programs.Attach(r.Endpoints, want.Tunnel.Index, want.Encryption.Index)
}

// servicesPatience is how long programs of an earlier agent stay for the sake of connections to Services; no pod is
// added meanwhile.
const servicesPatience = 5 * time.Minute

// missesServices says why programs of an earlier agent are not replaced yet, if so. If the cluster cannot be read for
// longer than its pods can wait, existing connections lose what the old programs did for them; sockets keep theirs.
func (r *Reconciler) missesServices(now time.Time) error {
	if !r.servicesLost || r.Services.Filled() {
		return nil
	}
	if until := r.started.Add(servicesPatience); now.Before(until) {
		return fmt.Errorf("%w; they are replaced without at %s", errServicesMissing, until.UTC().Format(time.TimeOnly))
	}
	r.servicesLost = false
	r.Log.Warn("programs of an earlier agent are replaced before Services are synced: connections that they translated break", "waited", servicesPatience)
	return nil
}

// errPoliciesMissing keeps the programs of an earlier agent attached.
var errPoliciesMissing = errors.New("programs that enforce NetworkPolicies wait for the cluster's policies, without which pods would be open")

// applyPolicies hands over the state of the node. When the agent starts, it waits for policies that are synced
// already.
func (r *Reconciler) applyPolicies(want node.Desired) {
	if r.Policies == nil {
		return
	}
	r.Policies.UpdatePods(r.Endpoints.PolicyPods())
	r.Policies.UpdateNode(want.Services.HostPortAddresses)
	if !r.Policies.Filled() {
		_ = r.Policies.Pass() // Problems has the failure
	}
}
