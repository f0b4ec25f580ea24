package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// pageSize is how many full objects of a list are in memory at once, on servers that cannot stream lists.
	pageSize = 500
	// Retries start after firstRetry and back off to lastRetry, each with up to 50% jitter.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
	// absentRetry is how often the agent asks for a kind that the server does not have.
	absentRetry = time.Minute
)

// watcher lists and watches one resource.
//
// It retries a request that gets no response, or a temporary error, itself. A watch then resumes where it was, where
// the reflector would often list again, and outages are tracked in one place.
type watcher struct {
	resource
	client *rest.RESTClient
	source *Source
	// reduce makes what the store gets of a full object.
	reduce func(full runtime.Object) (runtime.Object, error)
}

// list gets one page of a list and reduces it. The reflector asks for pages.
func (w *watcher) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		// The reflector asks for any cached version; the server would send that in one piece, without pages.
		options.ResourceVersion = ""
	}
	options.LabelSelector = w.labels
	page := w.empty.DeepCopyObject()
	if err := w.untilAnswered(ctx, func() error {
		return w.client.Get().MaxRetries(0).Resource(w.name).VersionedParams(&options, parameterCodec).Do(ctx).Into(page)
	}); err != nil {
		return nil, err
	}
	from, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	reduced := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue(), RemainingItemCount: from.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(page, func(full runtime.Object) error {
		item, err := w.reduce(full)
		if err == nil {
			reduced.Items = append(reduced.Items, item)
		}
		return err
	})
	return reduced, err
}

// watch begins a watch.
func (w *watcher) watch(ctx context.Context, options metav1.ListOptions) (stream watch.Interface, err error) {
	options.LabelSelector = w.labels
	options.Watch = true
	err = w.untilAnswered(ctx, func() error {
		stream, err = w.client.Get().MaxRetries(0).Resource(w.name).VersionedParams(&options, parameterCodec).Watch(ctx)
		if _, real := stream.(*watch.StreamWatcher); err == nil && !real {
			return errNoAnswer // the library turned an error into an empty watch
		}
		return err
	})
	return stream, err
}

// errNoAnswer is the error of a watch that got no response at all.
var errNoAnswer = errors.New("the connection was closed or timed out")

// request names this watcher's requests in messages.
func (w *watcher) request() string { return "to list and watch " + w.name }

// untilAnswered repeats a request until it succeeds or fails for good, or ctx ends.
func (w *watcher) untilAnswered(ctx context.Context, request func() error) error {
	for failed := 0; ; failed++ {
		err := request()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || !mayPass(err) {
			w.source.answered(w.request(), nil)
			return err
		}
		w.source.answered(w.request(), err)
		if w.optional && apierrors.IsForbidden(err) {
			// An agent that is newer than its role runs without the kind, and says so.
			w.source.change(w.kind, true, func(section) bool { return false })
		}
		if !w.source.pause(ctx, failed) {
			return ctx.Err()
		}
	}
}

// backoff is the wait after so many failures in a row.
func backoff(failed int) time.Duration {
	d := lastRetry
	if failed < 10 {
		d = min(firstRetry<<failed, lastRetry)
	}
	return d + rand.N(d/2)
}

// mayPass reports whether the same request may succeed later: there was no response, or a temporary error. The
// reflector handles other errors by another request.
func mayPass(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// sleep waits for d; it returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// follow keeps a section current until ctx ends.
func (w *watcher) follow(ctx context.Context, store cache.ReflectorStore) {
	requests := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	reflector := cache.NewReflectorWithOptions(requests, w.object, store, cache.ReflectorOptions{Name: w.name})
	reflector.WatchListPageSize = pageSize
	// A connection that is lost during a watch looks like an internal error of the server.
	reflector.MaxInternalErrorRetryDuration = time.Minute
	for failed := 0; ctx.Err() == nil; failed++ {
		begin := time.Now()
		if err := reflector.ListAndWatchWithContext(ctx); w.optional && apierrors.IsNotFound(err) {
			w.source.change(w.kind, true, func(of section) bool { return replace(of, nil) })
			w.source.clear(w.request())
			sleep(ctx, absentRetry)
			continue
		} else if err != nil && ctx.Err() == nil {
			w.source.answered(w.request(), err)
		} else if time.Since(begin) > lastRetry {
			failed = -1
		}
		w.source.pause(ctx, failed+1)
	}
}

// GetObjectKind and DeepCopyObject make an item a list element.

// GetObjectKind is empty: an item has no kind.
func (i *item) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject gives the item itself, which is immutable.
func (i *item) DeepCopyObject() runtime.Object { return i }
