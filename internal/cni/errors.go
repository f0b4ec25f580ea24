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

// Error codes of this plugin; the specification reserves those from 100 for plugins.
const (
	// ErrExists: the attachment, or an interface of that name in the pod, exists.
	ErrExists uint = 100
	// ErrExhausted: no pod address is free on this node, or in the IPPools of the pod.
	ErrExhausted uint = 101
	// ErrDiffers: CHECK found that the pod's network differs from the result of ADD.
	ErrDiffers uint = 102
	// ErrPortTaken: another pod has a hostPort of this one.
	ErrPortTaken uint = 103
	// ErrNoDevice: the node cannot make the kind of device that the pod or its network requests.
	ErrNoDevice uint = 104
	// ErrNoPool: the pod or its namespace requests an IPPool that the pod cannot have.
	ErrNoPool uint = 105
)

// agentError converts an error of a request to the agent at socket into a CNI error. Users read it in `kubectl describe
// pod`, often without access to the node: it names the failure, and what to do or where to look.
func agentError(what, socket string, err error) *types.Error {
	fail := func(code uint, format string, args ...any) *types.Error {
		return types.NewError(code, what+": "+fmt.Sprintf(format, args...), "")
	}
	switch {
	case errors.Is(err, agentapi.ErrNoAgent):
		result := fail(types.ErrTryAgainLater, "the beeline agent is not running on this node (no process listens at %s): "+
			"check its pod or service there; existing pods are not affected; try again later", socket)
		result.Details = err.Error()
		return result
	case errors.Is(err, context.DeadlineExceeded):
		return fail(types.ErrTryAgainLater, "the beeline agent of this node did not reply in time at %s: check its log; try again later", socket)
	case agentapi.HasCode(err, agentapi.CodeNotReady):
		return fail(types.ErrTryAgainLater, "%v (`beeline status` on the node shows all problems); try again later", err)
	case agentapi.HasCode(err, agentapi.CodeExhausted):
		return fail(ErrExhausted, "%v: delete pods of this node, lower the kubelet's maxPods, or give the node a larger pod range", err)
	case agentapi.HasCode(err, agentapi.CodePoolExhausted):
		return fail(ErrExhausted, "%v (`kubectl get ipclaims` shows which pods have the addresses)", err)
	case agentapi.HasCode(err, agentapi.CodeNoPool):
		return fail(ErrNoPool, "%v; `kubectl get ippools` shows the pools", err)
	case agentapi.HasCode(err, agentapi.CodePortTaken):
		return fail(ErrPortTaken, "%v; give one of the two pods another hostPort or another node", err)
	case agentapi.HasCode(err, agentapi.CodeNoDevice):
		return fail(ErrNoDevice, "%v; request another kind of device, or none", err)
	case agentapi.HasCode(err, agentapi.CodeConflict):
		return fail(ErrExists, "%v; DEL it first", err)
	case agentapi.HasCode(err, agentapi.CodeInvalid):
		return fail(types.ErrInternal, "the beeline agent rejects the request, check that agent and plugin have the same version: %v", err)
	default:
		return fail(types.ErrInternal, "%v (see the log of the node's beeline agent)", err)
	}
}

// deviceError converts an error of a device operation into a CNI error.
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
