package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/lab/suite/cluster/remote"
	"github.com/beeline-cni/beeline/lab/worker"
)

// right is one request that a role allows.
type right struct{ namespace, group, resource, name, verb string }

// server is the fake cluster behind the API of a real one: HTTP, with the rights of deploy/bench-rbac.yaml and no
// others.
type server struct {
	*fake
	rights map[right]bool // true: was needed
	seen   sync.Mutex
	denied []string
}

// benchRights reads the manifest.
func benchRights(t *testing.T) map[right]bool {
	t.Helper()
	content, err := os.ReadFile("../../../deploy/bench-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rights := map[right]bool{}
	for _, document := range strings.Split(string(content), "\n---\n") {
		var object struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
		}
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil && object.Kind != "" && strings.HasSuffix(object.Kind, "Role") {
			t.Fatal(err)
		}
		for _, rule := range object.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						rights[right{object.Namespace, rule.APIGroups[0], resource, name, verb}] = false
					}
				}
			}
		}
	}
	return rights
}

// may checks a right, of an object by name or of all.
func (s *server) may(want right) bool {
	s.seen.Lock()
	defer s.seen.Unlock()
	for _, name := range []string{"", want.name} {
		of := want
		of.name = name
		if _, ok := s.rights[of]; ok {
			s.rights[of] = true
			return true
		}
	}
	s.denied = append(s.denied, fmt.Sprint(want))
	return false
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		_, _ = io.WriteString(w, `{"gitVersion":"v1.99.0"}`)
		return
	}
	// /api/v1/… or /apis/GROUP/VERSION/…
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	want := right{}
	if parts[0] == "apis" {
		want.group, parts = parts[1], parts[1:]
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		want.namespace, parts = parts[1], parts[2:]
	}
	want.resource = parts[0]
	if len(parts) > 1 {
		want.name = parts[1]
	}
	if len(parts) > 2 {
		want.resource += "/" + parts[2]
	}
	want.verb = map[string]string{http.MethodPost: "create", http.MethodDelete: "delete", http.MethodPatch: "patch", http.MethodGet: "get"}[r.Method]
	if want.verb == "get" && want.name == "" {
		want.verb = "list"
	}
	allowed := s.may(want)
	if want.resource == "pods/exec" { // newer API servers want both
		both := want
		both.verb = "create"
		allowed = s.may(both) && allowed
	}
	if !allowed {
		s.status(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("may not %+v", want))
		return
	}
	if want.resource == "pods/exec" {
		s.exec(w, r, want.namespace, want.name)
		return
	}
	if err := s.answer(w, r, want); err != nil {
		s.status(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
}

func (s *server) status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, want right) (err error) {
	ctx, selector := r.Context(), r.URL.Query().Get("labelSelector")
	var object any = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	core := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }
	examples := map[string]remote.Object{"pods": &corev1.Pod{}, "services": &corev1.Service{}}
	lists := map[string]runtime.Object{
		"nodes": &corev1.NodeList{}, "pods": &corev1.PodList{}, "services": &corev1.ServiceList{}, "daemonsets": &appsv1.DaemonSetList{},
	}
	switch want.verb + " " + want.resource {
	case "list nodes", "list pods", "list services", "list daemonsets":
		list := lists[want.resource]
		err = s.List(ctx, list, want.namespace, selector)
		kind, version := strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), strings.TrimPrefix(want.group+"/v1", "/")
		list.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
		object = list
	case "get configmaps":
		config := corev1.ConfigMap{TypeMeta: core("ConfigMap")}
		err = s.Get(ctx, &config, want.namespace, want.name)
		object = config
	case "create pods", "create services":
		created := examples[want.resource]
		if err := json.NewDecoder(r.Body).Decode(created); err != nil {
			return err
		}
		err = s.Create(ctx, created)
		created.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(map[string]string{"pods": "Pod", "services": "Service"}[want.resource]))
		object = created
	case "delete pods", "delete services":
		gone := examples[want.resource]
		gone.SetName(want.name)
		err = s.Delete(ctx, gone)
	case "patch services":
		var service corev1.Service
		if err := json.NewDecoder(r.Body).Decode(&service); err != nil {
			return err
		}
		err = s.SetServicePorts(ctx, want.namespace, want.name, service.Spec.Ports)
		service.TypeMeta = core("Service")
		object = service
	default:
		return fmt.Errorf("nothing answers %+v", want)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(object)
}

// The channels of the protocol, which are the first byte of each message.
const (
	channelIn, channelOut, channelError = 0, 1, 3
	channelClose                        = 255 // followed by the channel
)

// exec runs a worker at the other end of a WebSocket.
func (s *server) exec(w http.ResponseWriter, r *http.Request, namespace, pod string) {
	if got := r.URL.Query()["command"]; !slices.Equal(got, []string{"beeline-bench", "work"}) || r.URL.Query().Get("container") != containerName {
		s.status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("command %q", got))
		return
	}
	socket, err := (&websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer socket.Close()
	s.mu.Lock()
	netns := s.nodeNetns[s.pods[pod].Spec.NodeName]
	s.workers++
	s.mu.Unlock()
	requests, in := io.Pipe()
	go func() {
		defer in.Close()
		for {
			_, message, err := socket.ReadMessage()
			if err != nil || len(message) == 0 || message[0] == channelClose {
				return
			}
			if message[0] == channelIn {
				if _, err := in.Write(message[1:]); err != nil {
					return
				}
			}
		}
	}()
	_ = worker.Loop(r.Context(), netns, requests, channel{socket})
	s.mu.Lock()
	s.workers--
	s.mu.Unlock()
	_ = socket.WriteMessage(websocket.BinaryMessage, append([]byte{channelError}, `{"status":"Success"}`...))
	_ = socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// channel writes to the standard output's.
type channel struct{ *websocket.Conn }

func (c channel) Write(p []byte) (int, error) {
	return len(p), c.WriteMessage(websocket.BinaryMessage, append([]byte{channelOut}, p...))
}

// connect starts the server and gives the API of it, as a user has it.
func connect(t *testing.T, s *server) API {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here,
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {token: t}}],
contexts: [{name: here, context: {cluster: c, user: u}}, {name: nowhere, context: {cluster: none, user: u}}]}`, web.URL)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(file, "nowhere", "test"); err == nil {
		t.Error("a context without a cluster: no error")
	}
	api, err := Connect(file, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// A run needs the rights that the manifest has, and no right of the manifest is not needed.
func TestRightsAreExact(t *testing.T) {
	s := &server{fake: newNetwork(t), rights: benchRights(t)}
	if len(s.rights) < 10 {
		t.Fatalf("%d rights", len(s.rights))
	}
	s.daemonSets = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Name: "kube-flannel-ds", Namespace: "kube-system"}}}
	api := connect(t, s)
	p := tiny(t, "tcp_rr")
	p.Namespace, p.Rounds = "beeline-bench", 1
	if left, err := Leftovers(t.Context(), api, p.Namespace); err != nil || len(left) != 0 {
		t.Errorf("before: %v, %v", left, err)
	}
	r, said, err := run(t, api, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	s.wantNothingLeft(t)
	for _, sample := range r.Samples {
		if sample.Error != "" {
			t.Errorf("%s %s: %s", sample.Network, sample.Path, sample.Error)
		}
	}
	if r.Cluster.Kubernetes != "v1.99.0" || r.Cluster.CNI != "Flannel" || r.Cluster.KubeProxy != "ipvs" {
		t.Errorf("%+v", r.Cluster)
	}
	// The one that is asked for and may be missing: what a whole cluster has.
	if want := []string{fmt.Sprint(right{"", "apps", "daemonsets", "", "list"})}; !slices.Equal(s.denied, want) {
		t.Errorf("denied: %q, want %q", s.denied, want)
	}
	for of, needed := range s.rights {
		if !needed {
			t.Errorf("no request needed %+v", of)
		}
	}
}
