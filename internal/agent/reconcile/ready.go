package reconcile

import "github.com/beeline-cni/beeline/internal/agent/problem"

// install installs the plugin and its configuration. A node where that fails is not ready. Its existing pods are not
// affected, so it is not r.failure.
func (r *Reconciler) install() {
	problems, err := r.Installer.Sync()
	r.notInstalled = err
	for _, p := range problems {
		r.current.Problem("%s", p)
	}
}

// unready is why the node cannot get pods; nil when it can.
func (r *Reconciler) unready() error {
	switch {
	case r.failure != nil:
		return problem.OneLine{Err: r.failure}
	case r.notInstalled != nil:
		return problem.OneLine{Err: r.notInstalled}
	}
	return nil
}

// readiness says whether pods can be added. Probes read it without the agent's lock.
type readiness struct{ err error }

// updateReadiness publishes it. The lock is held.
func (r *Reconciler) updateReadiness() { r.readiness.Store(&readiness{r.unready()}) }

// Ready is nil when the node can get pods. It takes no lock: the caller may be a probe during a long reconciliation.
func (r *Reconciler) Ready() error { return r.readiness.Load().err }

// Leaving says that the node is about to leave the cluster. It takes no lock.
func (r *Reconciler) Leaving() bool { return r.leaving.Load() }
