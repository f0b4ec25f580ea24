package cni

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/agent/api"
)

// Error codes of this plugin; the specification leaves those from 100 on to plugins.
const (
	// ErrExists: the attachment, or an interface of that name in the pod, exists already.
	ErrExists uint = 100
	// ErrExhausted: no pod address is free on this node.
	ErrExhausted uint = 101
	// ErrDiffers: CHECK found the pod's network other than ADD left it.
	ErrDiffers uint = 102
)

// agentError gives a CNI error for one that came from asking the agent at socket.
func agentError(what, socket string, err error) *types.Error {
	switch {
	case errors.Is(err, api.ErrNoAgent):
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: the beeline agent is not running: nobody answers at %s; try again later", what, socket), err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: the beeline agent at %s did not answer in time; try again later", what, socket), "")
	case api.HasCode(err, api.CodeNotReady):
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s: the beeline agent is not ready: %v; try again later", what, err), "")
	case api.HasCode(err, api.CodeExhausted):
		return types.NewError(ErrExhausted, fmt.Sprintf("%s: %v", what, err), "")
	case api.HasCode(err, api.CodeConflict):
		return types.NewError(ErrExists, fmt.Sprintf("%s: %v", what, err), "")
	default:
		return types.NewError(types.ErrInternal, fmt.Sprintf("%s: %v", what, err), "")
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
