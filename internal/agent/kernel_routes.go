package agent

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// applyKernelRoutes sets the routes of the kernel stack. A failure does not keep pods from being added: ADD sets the
// routes of its pod itself, and fails for that pod alone.
func (a *Agent) applyKernelRoutes(routes []route.Route, present route.Table) {
	_, err := present.Sync(routes)
	others := 0
	for _, e := range parts(err) {
		if errors.Is(e, route.ErrForeign) {
			continue // reported below, with its owner
		}
		if others++; others <= node.NamedForeign {
			a.current.Problem("kernel routes: %v; packets there from the node itself and through the kernel stack may be lost; retried at the next change", e)
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

// parts are the joined errors.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one only: what it wraps is one error
		return joined.Unwrap()
	}
	return []error{err}
}
