package agentapi

import (
	"errors"
	"fmt"
)

// ErrNoAgent says that nobody answered on the agent's socket: it does not exist, nobody listens on it, or
// the connection ended before a whole answer had come. In the last case the agent may have done what it
// was asked before it went away; every request can therefore be repeated, except Add, whose caller
// removes the host device (and with it the endpoint) instead.
var ErrNoAgent = errors.New("no agent answers")

// Code says what kind of error the agent reports, for callers that decide by it.
type Code string

// The codes of Error. An agent newer than its client may send others.
const (
	// CodeInvalid: the request cannot be understood or breaks a rule; repeating it will not help.
	CodeInvalid Code = "invalid"
	// CodeNotFound: no endpoint has this attachment.
	CodeNotFound Code = "not_found"
	// CodeConflict: the attachment, or a device or address of it, belongs to somebody else already.
	CodeConflict Code = "conflict"
	// CodePortTaken: another pod has a port of the node that this one asks for.
	CodePortTaken Code = "port_taken"
	// CodeExhausted: no pod address is free.
	CodeExhausted Code = "exhausted"
	// CodeNotReady: the agent has not finished starting, or does not know its node yet.
	CodeNotReady Code = "not_ready"
	// CodeInternal: everything else.
	CodeInternal Code = "internal"
)

// Error is what the agent answers when it cannot do what it was asked.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error gives the agent's sentence without the code.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error with a formatted message. It wraps nothing: an Error travels as text.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// HasCode reports whether err is, or wraps, an Error with this code.
func HasCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
