package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failures are the requests that fail at present, and since when.
type failures struct {
	host string
	// of has what the server refuses, by request: one for each resource.
	of map[string]failure
	// outage is set while the server gives no answer to any request.
	outage  *failure
	outages int
}

type failure struct {
	err   error
	since time.Time
}

// note takes note of how a request went.
func (f *failures) note(request string, err error, now time.Time) {
	if err != nil && !isAnswer(err) {
		if f.outage == nil {
			f.outages++
			f.outage = &failure{since: now}
		}
		f.outage.err = err
		return
	}
	f.outage = nil // an error too is an answer
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

// settled takes note that there is no need to make a request any more, whatever became of it.
func (f *failures) settled(request string) { delete(f.of, request) }

// unreachable tells whether the last request got no answer.
func (f *failures) unreachable() bool { return f.outage != nil }

// isAnswer tells an error that an API server sent from one of the way to it.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// sentences word what fails.
func (f *failures) sentences() []string {
	var all []string
	if f.outage != nil {
		all = append(all, fmt.Sprintf("the API server %s cannot be reached since %s: %v; the last state stays in force",
			f.host, clock(f.outage.since), cause(f.outage.err)))
	}
	for _, request := range slices.Sorted(maps.Keys(f.of)) {
		all = append(all, fmt.Sprintf("the API server refuses %s since %s: %v", request, clock(f.of[request].since), f.of[request].err))
	}
	return all
}

// clock gives a time to people.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// cause leaves the URL out, which differs from request to request.
func cause(err error) error {
	var wrapped interface{ Unwrap() error }
	if errors.As(err, &wrapped) {
		if inner := wrapped.Unwrap(); inner != nil {
			return inner
		}
	}
	return err
}
