package agent

import (
	"errors"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// applyKernelRoutes sets the routes of the kernel stack. Routes of other networks in their way are a problem of their
// own, which names the owner, and no error.
func (a *Agent) applyKernelRoutes(routes []route.Route, present route.Table) error {
	_, err := present.Sync(routes)
	if text := node.ForeignProblem(present.Foreign(node.RangesOf(routes)), a.uplinks); text != "" {
		a.current.Problem("%s", text)
	}
	isForeign := func(err error) bool { return errors.Is(err, route.ErrForeign) }
	return errors.Join(slices.DeleteFunc(slices.Clone(parts(err)), isForeign)...)
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
