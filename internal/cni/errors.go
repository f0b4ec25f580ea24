package cni

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// Error codes of this plugin; the specification leaves those from 100 on to plugins.
const (
	// ErrExists: the attachment, or an interface of that name in the pod, exists already.
	ErrExists uint = 100
	// ErrExhausted: no pod address is free on this node.
	ErrExhausted uint = 101
	// ErrDiffers: CHECK found the pod's network other than ADD left it.
	ErrDiffers uint = 102
	// ErrPortTaken: another pod has a port of the node that this one asks for.
	ErrPortTaken uint = 103
)

// agentError gives a CNI error for one that came from asking the agent at socket. People read it in `kubectl describe
// pod`, often without access to the node: it says what is wrong with what, and what to do or where to look.
func agentError(what, socket string, err error) *types.Error {
	fail := func(code uint, format string, args ...any) *types.Error {
		return types.NewError(code, what+": "+fmt.Sprintf(format, args...), "")
	}
	switch {
	case errors.Is(err, agentapi.ErrNoAgent):
		told := fail(types.ErrTryAgainLater, "the beeline agent is not running on this node (nobody answers at %s): "+
			"see why its pod or service does not run there; pods that exist are not affected; try again later", socket)
		told.Details = err.Error()
		return told
	case errors.Is(err, context.DeadlineExceeded):
		return fail(types.ErrTryAgainLater, "the beeline agent of this node did not answer in time at %s: its log may say why; try again later", socket)
	case agentapi.HasCode(err, agentapi.CodeNotReady):
		return fail(types.ErrTryAgainLater, "%v (`beeline status` on the node shows all that is wrong); try again later", err)
	case agentapi.HasCode(err, agentapi.CodeExhausted):
		return fail(ErrExhausted, "%v: delete pods of this node, have the kubelet take fewer (maxPods), or give the node a larger range", err)
	case agentapi.HasCode(err, agentapi.CodePortTaken):
		return fail(ErrPortTaken, "%v; one of the two pods needs another hostPort, or another node", err)
	case agentapi.HasCode(err, agentapi.CodeConflict):
		return fail(ErrExists, "%v; DEL it first", err)
	case agentapi.HasCode(err, agentapi.CodeInvalid):
		return fail(types.ErrInternal, "the beeline agent does not understand the plugin, is one of the two older? %v", err)
	default:
		return fail(types.ErrInternal, "%v (the log of the node's beeline agent has more)", err)
	}
}

// deviceError gives a CNI error for one of a device operation.
func deviceError(what string, err error) *types.Error {
	code := types.ErrInternal
	var absent ns.NSPathNotExistErr
	var other ns.NSPathNotNSErr
	switch {
	case errors.As(err, &absent), errors.As(err, &other):
		code = types.ErrInvalidNetNS
	case errors.Is(err, syscall.EEXIST):
		code = ErrExists
	}
	return types.NewError(code, fmt.Sprintf("%s: %v", what, err), "")
}
