package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// open gives a client of a server that answers with handle.
func open(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: ""}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(file, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
}

func TestOpenNeedsAFile(t *testing.T) {
	if _, err := Open("/nowhere/kubeconfig", "", "test"); err == nil || !strings.Contains(err.Error(), "/nowhere/kubeconfig") {
		t.Errorf("%v", err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "gone") {
			status(w, http.StatusNotFound, "NotFound", "no such thing")
			return
		}
		status(w, http.StatusForbidden, "Forbidden", "may not")
	})
	ctx, there := t.Context(), metav1.ObjectMeta{Namespace: "ns", Name: "there"}
	for what, err := range map[string]error{
		"list nodes":       c.List(ctx, &corev1.NodeList{}, "", ""),
		"list daemonsets":  c.List(ctx, &appsv1.DaemonSetList{}, "", ""),
		"get configmaps":   c.Get(ctx, &corev1.ConfigMap{}, "ns", "there"),
		"list namespaces":  c.List(ctx, &corev1.NamespaceList{}, "", ""),
		"create pods":      c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}),
		"delete pods":      c.Delete(ctx, &corev1.Pod{ObjectMeta: there}),
		"set ports":        c.SetServicePorts(ctx, "ns", "there", nil),
		"its version":      second(c.Version(ctx)),
		"delete services":  c.Delete(ctx, &corev1.Service{ObjectMeta: there}),
		"create services":  c.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}),
		"create namespace": c.Create(ctx, &corev1.Namespace{}),
	} {
		if !IsForbidden(err) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A missing object is deleted already.
	if err := c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// socket serves an exec with a function that has both ends of the WebSocket.
func socket(t *testing.T, serve func(*websocket.Conn)) *Client {
	return open(t, func(w http.ResponseWriter, r *http.Request) {
		s, err := (&websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		serve(s)
		_ = s.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	})
}

func send(s *websocket.Conn, channel byte, text string) {
	_ = s.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, text...))
}

func TestProcessHasStreams(t *testing.T) {
	c := socket(t, func(s *websocket.Conn) {
		for {
			_, m, err := s.ReadMessage()
			if err != nil || len(m) > 0 && m[0] == 255 { // the input has ended
				break
			}
			if m[0] == 0 && len(m) > 1 {
				send(s, 1, "you said "+string(m[1:]))
			}
		}
		send(s, 3, `{"status":"Success"}`)
	})
	p, err := c.Start(t.Context(), "ns", "pod", "container", "cat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.In, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(p.Out).ReadString('\n'); err != nil || line != "you said hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("a process that ended with its input: %v", err)
	}
}

func TestProcessThatFailsSaysWhy(t *testing.T) {
	c := socket(t, func(s *websocket.Conn) {
		send(s, 2, strings.Repeat("noise ", 1000)+"no luck today\n")
		send(s, 3, `{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with exit code 1","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}`)
	})
	p, err := c.Start(t.Context(), "ns", "pod", "container", "false")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(p.Out)
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), "exit code 1") || len(err.Error()) > 2048 {
		t.Errorf("read: %v", err)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "run false in pod pod") {
		t.Errorf("%v", err)
	}
}

func TestProcessThatMayNotRun(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, _ *http.Request) { status(w, http.StatusForbidden, "Forbidden", "may not") })
	p, err := c.Start(t.Context(), "ns", "pod", "container", "true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(p.Out); err == nil {
		t.Error("a process that did not start ended well")
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "may not") && !strings.Contains(strings.ToLower(err.Error()), "forbidden") {
		t.Errorf("%v", err)
	}
}

func TestProcessEndsWithItsContext(t *testing.T) {
	c := socket(t, func(s *websocket.Conn) {
		for {
			if _, _, err := s.ReadMessage(); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	p, err := c.Start(ctx, "ns", "pod", "container", "sleep")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := io.ReadAll(p.Out); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("%v", err)
	}
}
