// Package server is the agent's side of internal/agentapi: the HTTP handler and the listening socket. It is a
// separate package so that the plugin, a client only, does not link net/http.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// maxRequest bounds the body of a request, in bytes. The largest is GC's list of attachments: a thousand take about
// 100 kB.
const maxRequest = 4 << 20

// Handler serves the API from s. It decodes bodies strictly: unknown fields are errors.
func Handler(s agentapi.Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(agentapi.PathAdd, post(s.Add))
	mux.Handle(agentapi.PathDelete, post(func(ctx context.Context, req agentapi.DeleteRequest) (struct{}, error) {
		return struct{}{}, s.Delete(ctx, req)
	}))
	mux.Handle(agentapi.PathCheck, post(s.Check))
	mux.Handle(agentapi.PathGC, post(func(ctx context.Context, req agentapi.GCRequest) (struct{}, error) {
		return struct{}{}, s.GC(ctx, req)
	}))
	mux.Handle(agentapi.PathStatus, get(s.Status))
	mux.Handle(agentapi.PathEndpoints, get(s.Endpoints))
	mux.Handle(agentapi.PathServices, post(s.Services))
	mux.Handle(agentapi.PathPolicies, post(s.Policies))
	mux.Handle(agentapi.PathExplain, post(s.ExplainPolicy))
	mux.Handle(agentapi.PathDrops, get(s.Drops))
	mux.Handle(agentapi.PathFlows, post(s.Flows))
	mux.Handle(agentapi.PathFollow, stream(s.FollowFlows))
	mux.Handle(agentapi.PathReady, get(func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Ready(ctx)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reject(w, http.StatusNotFound, agentapi.Errorf(agentapi.CodeInvalid, "no such path: %s", r.URL.Path))
	})
	return mux
}

// posted decodes the body of a POST request; ok is false if it has responded with an error.
func posted[Req any](w http.ResponseWriter, r *http.Request) (req Req, ok bool) {
	if !allow(w, r, http.MethodPost) {
		return req, false
	}
	if err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req); err != nil {
		reject(w, http.StatusBadRequest, agentapi.Errorf(agentapi.CodeInvalid, "decode request: %v", err))
		return req, false
	}
	return req, true
}

func post[Req, Resp any](do func(context.Context, Req) (Resp, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if req, ok := posted[Req](w, r); ok {
			respond(w, func() (Resp, error) { return do(r.Context(), req) })
		}
	})
}

func get[Resp any](do func(context.Context) (Resp, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allow(w, r, http.MethodGet) {
			respond(w, func() (Resp, error) { return do(r.Context()) })
		}
	})
}

func allow(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	reject(w, http.StatusMethodNotAllowed, agentapi.Errorf(agentapi.CodeInvalid, "%s takes %s, not %s", r.URL.Path, method, r.Method))
	return false
}

// decode reads exactly one JSON value with no unknown field.
func decode(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("body is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows the JSON value")
	}
	return nil
}

func respond[Resp any](w http.ResponseWriter, do func() (Resp, error)) {
	resp, err := do()
	if err != nil {
		code := agentapi.CodeInternal
		var failure *agentapi.Error
		if errors.As(err, &failure) {
			code = failure.Code
		}
		reject(w, status(code), &agentapi.Error{Code: code, Message: err.Error()})
		return
	}
	write(w, http.StatusOK, resp)
}

func status(code agentapi.Code) int {
	switch code {
	case agentapi.CodeInvalid:
		return http.StatusBadRequest
	case agentapi.CodeNotFound:
		return http.StatusNotFound
	case agentapi.CodeConflict, agentapi.CodePortTaken:
		return http.StatusConflict
	case agentapi.CodeExhausted:
		return http.StatusInsufficientStorage
	case agentapi.CodeNotReady:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func reject(w http.ResponseWriter, status int, e *agentapi.Error) { write(w, status, e) }

// write encodes before it sends, so that the length is known and a response is either complete or an error.
func write(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		body.Reset()
		status = http.StatusInternalServerError
		fmt.Fprintf(&body, "{\"code\":%q,\"message\":%q}\n", agentapi.CodeInternal, "encode response: "+err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a client that has gone needs no response
}
