package apiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// served are the resources of the fake server.
var served = append(slices.Clone(resources), resource{name: claimsName, object: &v1alpha1.IPClaim{}, empty: &v1alpha1.IPClaimList{}},
	resource{name: "statefulsets", object: &appsv1.StatefulSet{}, empty: &appsv1.StatefulSetList{}})

// get answers with one object.
func (f *fakeServer) get(w http.ResponseWriter, gv schema.GroupVersion, resource, key string) {
	f.mu.Lock()
	o := f.objects[resource][key]
	f.mu.Unlock()
	switch set, ok := o.(*appsv1.StatefulSet); {
	case o == nil:
		f.fail(w, apierrors.NewNotFound(gv.WithResource(resource).GroupResource(), key))
	case ok: // the scheme of the agent does not have it
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(set)
	default:
		f.write(w, http.StatusOK, gv, o)
	}
}

// changeClaim creates, updates or deletes a claim, with the preconditions of the real server.
func (f *fakeServer) changeClaim(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, name []string) {
	body, _ := io.ReadAll(r.Body)
	var claim v1alpha1.IPClaim
	var options metav1.DeleteOptions
	if r.Method == http.MethodDelete {
		_ = json.Unmarshal(body, &options)
	} else if err := json.Unmarshal(body, &claim); err != nil {
		panic(err)
	}
	of := gv.WithResource(claimsName).GroupResource()
	if len(name) == 0 {
		name = []string{claim.Name}
	}
	f.mu.Lock()
	old, _ := f.objects[claimsName]["/"+name[0]].(*v1alpha1.IPClaim)
	f.mu.Unlock()
	conflict := func(uid types.UID, version string) bool { return uid != old.UID || version != old.ResourceVersion }
	switch {
	case r.Method == http.MethodPost && old != nil:
		f.fail(w, apierrors.NewAlreadyExists(of, name[0]))
	case r.Method != http.MethodPost && old == nil:
		f.fail(w, apierrors.NewNotFound(of, name[0]))
	case r.Method == http.MethodPut && conflict(claim.UID, claim.ResourceVersion),
		r.Method == http.MethodDelete && conflict(*options.Preconditions.UID, *options.Preconditions.ResourceVersion):
		f.fail(w, apierrors.NewConflict(of, name[0], errors.New("it has changed")))
	case r.Method == http.MethodDelete:
		f.remove(old)
		f.write(w, http.StatusOK, schema.GroupVersion{Version: "v1"}, &metav1.Status{Status: metav1.StatusSuccess})
	default:
		if old == nil {
			f.mu.Lock()
			claim.UID = types.UID("uid-" + strconv.Itoa(f.version))
			f.mu.Unlock()
		}
		f.put(&claim)
		f.get(w, gv, claimsName, "/"+name[0])
	}
}

// patchPool applies a merge patch of the status of a pool.
func (f *fakeServer) patchPool(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, name string) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	pool := f.objects["ippools"]["/"+name].DeepCopyObject().(*v1alpha1.IPPool)
	f.mu.Unlock()
	var state, patch map[string]any
	before, err := json.Marshal(pool)
	if err := errors.Join(err, json.Unmarshal(before, &state), json.Unmarshal(body, &patch)); err != nil {
		panic(err)
	}
	merge(state, patch)
	after, err := json.Marshal(state)
	var patched v1alpha1.IPPool
	if err := errors.Join(err, json.Unmarshal(after, &patched)); err != nil {
		panic(err)
	}
	f.put(&patched)
	f.get(w, gv, "ippools", "/"+name)
}

// merge applies a JSON merge patch (RFC 7396) to an object.
func merge(to, patch map[string]any) {
	for key, value := range patch {
		inner, is := value.(map[string]any)
		outer, was := to[key].(map[string]any)
		switch {
		case value == nil:
			delete(to, key)
		case is && was:
			merge(outer, inner)
		default:
			to[key] = value
		}
	}
}
