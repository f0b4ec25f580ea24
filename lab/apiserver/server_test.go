package apiserver

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func startServer(t *testing.T) (*Server, string) {
	t.Helper()
	s := New()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(listener)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, "http://" + listener.Addr().String()
}

func service(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
}

func put(t *testing.T, s *Server, objects ...runtime.Object) {
	t.Helper()
	if err := s.Put(objects...); err != nil {
		t.Fatal(err)
	}
}

// client is one as kube-proxy and the agent have: of the kubeconfig file, for protobuf or JSON.
func client(t *testing.T, url, form string) *rest.RESTClient {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, Kubeconfig(url), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = codecs().WithoutConversion()
	config.ContentType, config.AcceptContentTypes = form, form
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInformers(t *testing.T) {
	for _, form := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(form, func(t *testing.T) {
			s, url := startServer(t)
			put(t, s, service("a", nil), service("other", map[string]string{"proxy": "mine"}))
			events := make(chan string, 10)
			tell := func(what string) func(any) {
				return func(o any) {
					if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
						o = gone.Obj
					}
					events <- what + " " + o.(*corev1.Service).Name
				}
			}
			_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
				ListerWatcher: cache.NewFilteredListWatchFromClient(client(t, url, form), "services", "", func(o *metav1.ListOptions) { o.LabelSelector = "!proxy" }),
				ObjectType:    &corev1.Service{},
				Handler: cache.ResourceEventHandlerFuncs{
					AddFunc: tell("add"), DeleteFunc: tell("delete"), UpdateFunc: func(_, o any) { tell("update")(o) },
				},
			})
			go controller.RunWithContext(t.Context())
			expect := func(want string) {
				t.Helper()
				select {
				case got := <-events:
					if got != want {
						t.Fatalf("%q, want %q", got, want)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("no event, want %q", want)
				}
			}
			expect("add a")
			put(t, s, service("b", nil))
			expect("add b")
			changed := service("b", nil)
			changed.Spec.ClusterIP = "10.96.0.1"
			put(t, s, service("third", map[string]string{"proxy": "mine"}), changed)
			expect("update b")
			if err := s.Delete(service("a", nil)); err != nil {
				t.Fatal(err)
			}
			expect("delete a")
		})
	}
}

func TestWatchFromVersion(t *testing.T) {
	s, url := startServer(t)
	put(t, s, service("a", nil), service("b", nil))
	response, err := http.Get(url + "/api/v1/services?watch=true&resourceVersion=2")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	put(t, s, service("c", nil))
	var got []string
	for lines := bufio.NewScanner(response.Body); len(got) < 2 && lines.Scan(); {
		var event struct {
			Type   watch.EventType
			Object corev1.Service
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(event.Type)+" "+event.Object.Name+" "+event.Object.ResourceVersion)
	}
	if diff := cmp.Diff([]string{"ADDED b 3", "ADDED c 4"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRequests(t *testing.T) {
	s, url := startServer(t)
	put(t, s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	for name, test := range map[string]struct {
		method, path string
		code         int
		want, not    string
	}{
		"health":         {"GET", "/readyz", 200, "ok", ""},
		"one":            {"GET", "/api/v1/nodes/n1", 200, `"name":"n1"`, "n2"},
		"none":           {"GET", "/api/v1/nodes/n3", 404, "not found", ""},
		"field":          {"GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn2", 200, `"name":"n2"`, "n1"},
		"bad selector":   {"GET", "/api/v1/nodes?labelSelector=%3D%3D", 400, "BadRequest", ""},
		"empty list":     {"GET", "/apis/networking.k8s.io/v1/servicecidrs", 200, "ServiceCIDRList", ""},
		"unknown":        {"GET", "/apis/example.org/v1/things", 404, "no such resource", ""},
		"node's status":  {"PATCH", "/api/v1/nodes/n1/status", 200, `"name":"n1"`, "Ready"},
		"event accepted": {"POST", "/apis/events.k8s.io/v1/namespaces/default/events", 201, "{}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequest(test.method, url+test.path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var body strings.Builder
			if _, err := bufio.NewReader(response.Body).WriteTo(&body); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.code || !strings.Contains(body.String(), test.want) || test.not != "" && strings.Contains(body.String(), test.not) {
				t.Errorf("%d: %s", response.StatusCode, body.String())
			}
		})
	}
	if err := s.Delete(service("none", nil)); err == nil {
		t.Error("what is not there can be deleted")
	}
	if err := s.Put(&corev1.Secret{}); err == nil {
		t.Error("a secret is no object of this server")
	}
}
