package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// taints gives those of the server's Node, as KEY:EFFECT.
func (f *fakeServer) taints() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := f.objects["nodes"]["/n1"].(*corev1.Node); ok {
		for _, t := range n.Spec.Taints {
			all = append(all, t.Key+":"+string(t.Effect))
		}
	}
	return all
}

func (r *running) expectTaints(want ...string) {
	r.t.Helper()
	eventually(r.t, func() string { return fmt.Sprintf("taints are %q, want %q", r.server.taints(), want) },
		func() bool { return slices.Equal(r.server.taints(), want) })
}

// The taint of the kubelet's registration is removed when the agent is ready, and added when it is not. Other taints
// remain, also concurrent ones.
func TestTaint(t *testing.T) {
	server := newFakeServer(t)
	mine := corev1.Taint{Key: NotReadyTaint, Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "example.org/gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	late := corev1.Taint{Key: "example.org/late", Effect: corev1.TaintEffectNoSchedule}
	registered := n1.DeepCopy()
	registered.Spec.Taints = []corev1.Taint{mine, other}
	server.put(registered, n2)
	reporter, r := report(t, server)
	r.expectState(n1n2)
	r.expectTaints(NotReadyTaint+":NoExecute", "example.org/gpu:NoSchedule")
	if n := server.count("PATCH"); n != 0 {
		t.Errorf("%d patches before anything is known", n)
	}
	reporter.Available(true, "Ready", "all is well")
	r.expectTaints("example.org/gpu:NoSchedule")
	reporter.Available(false, "Broken", "nothing is")
	r.expectTaints("example.org/gpu:NoSchedule", NotReadyTaint+":NoSchedule")
	r.expectCondition(Condition{Status: "True", Reason: "Broken", Message: "nothing is"})
	reporter.Available(true, "Ready", "all is well")
	r.expectTaints("example.org/gpu:NoSchedule")
	// A patch that meets a newer version than the watch has delivered is rejected, and repeated.
	if patches := server.count("PATCH nodes/n1 "); patches < 3 || patches > 6 {
		t.Errorf("%d patches of taints for 3 changes: %q", patches, server.patches)
	}
	// Another client adds the taint, with another beside it.
	again := n1.DeepCopy()
	again.Spec.Taints = []corev1.Taint{mine, other, late}
	server.put(again)
	r.expectTaints("example.org/gpu:NoSchedule", "example.org/late:NoSchedule")
}

// The API server reviews tokens, and then whether their user may read.
func TestAllowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			var review authenticationv1.TokenReview
			decodeBody(t, r, &review)
			review.Kind, review.APIVersion = "TokenReview", "authentication.k8s.io/v1"
			if user, ok := strings.CutPrefix(review.Spec.Token, "token of "); ok {
				review.Status.Authenticated, review.Status.User.Username = true, user
				review.Status.User.Groups = []string{"readers"}
			}
			answer = review
		default:
			var review authorizationv1.SubjectAccessReview
			decodeBody(t, r, &review)
			review.Kind, review.APIVersion = "SubjectAccessReview", "authorization.k8s.io/v1"
			a := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && slices.Contains(review.Spec.Groups, "readers") && a != nil && a.Path == "/metrics" && a.Verb == "get"
			answer = review
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	config := &rest.Config{Host: server.URL}
	c, err := connect(config)
	if err != nil {
		t.Fatal(err)
	}
	r := newReporter(c, "n1", nil, nil)
	for token, want := range map[string]string{"token of prometheus": "prometheus true", "token of another": "another false", "forged": " false"} {
		user, allowed, err := r.Allowed(t.Context(), token, "/metrics")
		if got := fmt.Sprint(user, " ", allowed); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", token, got, err, want)
		}
	}
	server.Close()
	if _, allowed, err := r.Allowed(t.Context(), "token of prometheus", "/metrics"); err == nil || allowed {
		t.Errorf("without an API server: %t, %v", allowed, err)
	}
}

// decodeBody decodes a request's body, which is protobuf.
func decodeBody[T any](t *testing.T, r *http.Request, into *T) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if read, ok := object.(any).(*T); ok && err == nil {
		*into = *read
		return
	}
	t.Errorf("sent was %T, %v", object, err)
}
