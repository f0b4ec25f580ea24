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
	mux.Handle("POST "+agentapi.PathPrepare, post(s.Prepare))
	mux.Handle("POST "+agentapi.PathAdd, post(s.Add))
	mux.Handle("POST "+agentapi.PathDelete, post(func(ctx context.Context, req agentapi.DeleteRequest) (struct{}, error) {
		return struct{}{}, s.Delete(ctx, req)
	}))
	mux.Handle("POST "+agentapi.PathCheck, post(s.Check))
	mux.Handle("POST "+agentapi.PathGC, post(func(ctx context.Context, req agentapi.GCRequest) (struct{}, error) {
		return struct{}{}, s.GC(ctx, req)
	}))
	mux.Handle("GET "+agentapi.PathStatus, get(s.Status))
	mux.Handle("GET "+agentapi.PathEndpoints, get(s.Endpoints))
	mux.Handle("POST "+agentapi.PathServices, post(s.Services))
	mux.Handle("GET "+agentapi.PathIPPools, get(s.IPPools))
	mux.Handle("POST "+agentapi.PathPolicies, post(s.Policies))
	mux.Handle("POST "+agentapi.PathExplain, post(s.ExplainPolicy))
	mux.Handle("GET "+agentapi.PathDrops, get(s.Drops))
	mux.Handle("POST "+agentapi.PathFlows, post(s.Flows))
	mux.Handle("POST "+agentapi.PathFollow, stream(s.FollowFlows))
	mux.Handle("GET "+agentapi.PathReady, get(func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Ready(ctx)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reject(w, agentapi.Errorf(agentapi.CodeInvalid, "no such request: %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// posted decodes the body of a POST request; ok is false if it has responded with an error.
func posted[Req any](w http.ResponseWriter, r *http.Request) (req Req, ok bool) {
	if err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req); err != nil {
		reject(w, agentapi.Errorf(agentapi.CodeInvalid, "decode request: %v", err))
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
		respond(w, func() (Resp, error) { return do(r.Context()) })
	})
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
		reject(w, &agentapi.Error{Code: code, Message: err.Error()})
		return
	}
	write(w, http.StatusOK, resp)
}

// reject responds with an error. Clients branch on its code; the status only says whether the request was invalid.
func reject(w http.ResponseWriter, e *agentapi.Error) {
	status := http.StatusInternalServerError
	if e.Code == agentapi.CodeInvalid {
		status = http.StatusBadRequest
	}
	write(w, status, e)
}

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
