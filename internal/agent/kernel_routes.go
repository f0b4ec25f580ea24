package agent

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// applyKernelRoutes sets the routes of the host's stack. None that cannot be set keeps pods from being added: those of pods are set by ADD
// too, which then fails for that pod alone.
func (a *Agent) applyKernelRoutes(routes []route.Route, present route.Table) {
	_, err := present.Sync(routes)
	others := 0
	for _, e := range parts(err) {
		if errors.Is(e, route.ErrForeign) {
			continue // told of below, with whose it is
		}
		if others++; others <= node.NamedForeign {
			a.current.Problem("kernel routes: %v; what the node itself sends there, and pods that go through its stack, may be lost; it is tried again at the next change", e)
		}
	}
	if others > node.NamedForeign {
		a.current.Problem("kernel routes: %d more could not be set, see the log", others-node.NamedForeign)
		a.log.Error("kernel routes", "error", err)
	}
	if text := node.ForeignProblem(present.Foreign(node.RangesOf(routes)), a.uplinks); text != "" {
		a.current.Problem("%s", text)
	}
}

// parts are the errors that were joined.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one only: what it wraps is told as a whole
		return joined.Unwrap()
	}
	return []error{err}
}
