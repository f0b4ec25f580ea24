package agentapi

import (
	"errors"
	"fmt"
)

// ErrNoAgent says that there was no response on the agent's socket: it does not exist, no agent listens, or the
// connection ended before the response was complete. In the last case the agent may have executed the request. Every
// request can therefore be repeated, except Add, whose caller removes the host device (and with it the endpoint)
// instead.
var ErrNoAgent = errors.New("no agent responds")

// Code is the kind of an error, for callers that branch on it.
type Code string

// The codes of Error. An agent newer than its client may send others.
const (
	// CodeInvalid: the request is invalid; repeating it will not help.
	CodeInvalid Code = "invalid"
	// CodeNotFound: no endpoint has this attachment.
	CodeNotFound Code = "not_found"
	// CodeConflict: the attachment, or a device or address of it, belongs to another endpoint.
	CodeConflict Code = "conflict"
	// CodePortTaken: another pod has a port of the node that this one requests.
	CodePortTaken Code = "port_taken"
	// CodeNoDevice: this node cannot make the kind of device that the pod or its network requests.
	CodeNoDevice Code = "no_device"
	// CodeExhausted: no pod address of the node is free.
	CodeExhausted Code = "exhausted"
	// CodePoolExhausted: no IPPool of the pod has a free address for it.
	CodePoolExhausted Code = "pool_exhausted"
	// CodeNoPool: the pod requests an IPPool that it cannot have.
	CodeNoPool Code = "no_pool"
	// CodeNotReady: the agent has not finished starting, or has not found its node yet.
	CodeNotReady Code = "not_ready"
	// CodeInternal: everything else.
	CodeInternal Code = "internal"
)

// Error is the agent's response to a failed request.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error gives the agent's sentence without the code.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error with a formatted message. It does not wrap errors, because an Error is sent as text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// HasCode reports whether err is, or wraps, an Error with this code.
func HasCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
