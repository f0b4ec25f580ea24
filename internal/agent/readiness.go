package agent

// readiness says whether pods can be added. Probes read it without the agent's lock.
type readiness struct{ err error }

// updateReadiness publishes it. The lock is held.
func (a *Agent) updateReadiness() { a.readiness.Store(&readiness{a.unready()}) }
