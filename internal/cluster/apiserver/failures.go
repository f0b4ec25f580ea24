package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failures are the requests that currently fail, and since when.
type failures struct {
	host string
	// of has the errors that the server returned, by request: one for each resource.
	of map[string]failure
	// outage is set while no request gets a response.
	outage  *failure
	outages int
}

type failure struct {
	err   error
	since time.Time
}

// note records the result of a request.
func (f *failures) note(request string, err error, now time.Time) {
	if err != nil && !isAnswer(err) {
		if f.outage == nil {
			f.outages++
			f.outage = &failure{since: now}
		}
		f.outage.err = err
		return
	}
	f.outage = nil // an error is a response, too
	if err == nil {
		delete(f.of, request)
		return
	}
	since := now
	if already, failing := f.of[request]; failing {
		since = already.since
	}
	f.of[request] = failure{err, since}
}

// unreachable reports whether the last request got no response.
func (f *failures) unreachable() bool { return f.outage != nil }

// isAnswer distinguishes an error that the API server returned from a transport error.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// sentences describes the current failures.
func (f *failures) sentences() []string {
	var all []string
	if f.outage != nil {
		all = append(all, fmt.Sprintf("the API server %s cannot be reached since %s: %v; the last state remains active",
			f.host, clock(f.outage.since), cause(f.outage.err)))
	}
	for _, request := range slices.Sorted(maps.Keys(f.of)) {
		all = append(all, fmt.Sprintf("the API server refuses %s since %s: %v", request, clock(f.of[request].since), f.of[request].err))
	}
	return all
}

// clock formats a time for messages.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// cause strips the URL, which differs from request to request.
func cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
