package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
)

// echo responds with its request, or with err.
type echo struct {
	err  error
	got  []any
	wait chan struct{}
}

func (e *echo) note(v any) error {
	e.got = append(e.got, v)
	return e.err
}

var added = agentapi.Endpoint{Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00::5")}, MTU: 1500}

func (e *echo) Prepare(_ context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	return &agentapi.Preparation{Device: "netkit"}, e.note(req)
}
func (e *echo) Add(_ context.Context, req agentapi.AddRequest) (*agentapi.Endpoint, error) {
	return &added, e.note(req)
}
func (e *echo) Delete(_ context.Context, req agentapi.DeleteRequest) error { return e.note(req) }
func (e *echo) Check(_ context.Context, a agentapi.Attachment) (*agentapi.Endpoint, error) {
	return &agentapi.Endpoint{Attachment: a, State: "ready"}, e.note(a)
}
func (e *echo) GC(_ context.Context, req agentapi.GCRequest) error { return e.note(req) }
func (e *echo) Status(context.Context) (*agentapi.Status, error) {
	return &agentapi.Status{Node: "a"}, e.note("status")
}
func (e *echo) Endpoints(context.Context) ([]agentapi.Endpoint, error) {
	return []agentapi.Endpoint{{MTU: 9000}}, e.note("endpoints")
}
func (e *echo) Services(_ context.Context, which agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	return []agentapi.ServicePort{{Name: "web"}}, e.note(which)
}
func (e *echo) IPPools(context.Context) ([]agentapi.IPPool, error) {
	return []agentapi.IPPool{{Name: "office"}}, e.note("ippools")
}
func (e *echo) Policies(_ context.Context, which agentapi.PolicyFilter) ([]agentapi.NetworkPolicy, error) {
	return []agentapi.NetworkPolicy{{Name: "web"}}, e.note(which)
}
func (e *echo) ExplainPolicy(_ context.Context, q agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	return &agentapi.PolicyAnswer{Allowed: true}, e.note(q)
}
func (e *echo) Drops(context.Context) ([]agentapi.Drop, error) {
	return []agentapi.Drop{{Packets: 7}}, e.note("drops")
}
func (e *echo) Flows(_ context.Context, which agentapi.FlowFilter) (*agentapi.FlowList, error) {
	return &agentapi.FlowList{Buffered: 3}, e.note(which)
}
func (e *echo) FollowFlows(_ context.Context, which agentapi.FlowFilter, each func(agentapi.FlowLine) error) error {
	if err := e.note(which); err != nil {
		return err
	}
	return errors.Join(each(agentapi.FlowLine{Missed: 4}), each(agentapi.FlowLine{Missed: 5}))
}
func (e *echo) Ready(ctx context.Context) error {
	if e.wait != nil {
		select {
		case <-e.wait:
		case <-ctx.Done():
		}
	}
	return e.note("ready")
}

// start serves s on a socket until the test ends.
func start(t *testing.T, s agentapi.Service) (*agentapi.Client, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "run", "agent.sock")
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	httpServer := &http.Server{Handler: server.Handler(s)}
	go func() { _ = httpServer.Serve(l) }() // until it is closed
	t.Cleanup(func() { httpServer.Close() })
	return agentapi.NewClient(socket), socket
}

var pod = agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}

func TestEveryMethodIsServed(t *testing.T) {
	service := &echo{}
	client, _ := start(t, service)
	ctx := context.Background()
	add := agentapi.AddRequest{Direct: true, Endpoint: agentapi.Endpoint{
		Attachment: pod, Netns: "/run/netns/x", HostDevice: "bl1", HostIfIndex: 4, HostMAC: "02:00:00:00:00:01",
		PodMAC: "02:00:00:00:00:02", Pod: agentapi.PodRef{Namespace: "default", Name: "web", UID: "u"},
	}}
	prepare := agentapi.PrepareRequest{Attachment: pod, Pod: agentapi.PodRef{Name: "web"}, Device: "veth"}
	del := agentapi.DeleteRequest{Attachment: pod, HostIfIndex: 4}
	gc := agentapi.GCRequest{Valid: []agentapi.Attachment{pod}}

	tests := []struct {
		name string
		call func() (any, error)
		sent any
		want any
	}{
		{"Prepare", func() (any, error) { return client.Prepare(ctx, prepare) }, prepare, &agentapi.Preparation{Device: "netkit"}},
		{"Add", func() (any, error) { return client.Add(ctx, add) }, add, &added},
		{"Delete", func() (any, error) { return nil, client.Delete(ctx, del) }, del, nil},
		{"Check", func() (any, error) { return client.Check(ctx, pod) }, pod, &agentapi.Endpoint{Attachment: pod, State: "ready"}},
		{"GC", func() (any, error) { return nil, client.GC(ctx, gc) }, gc, nil},
		{"Status", func() (any, error) { return client.Status(ctx) }, "status", &agentapi.Status{Node: "a"}},
		{"Endpoints", func() (any, error) { return client.Endpoints(ctx) }, "endpoints", []agentapi.Endpoint{{MTU: 9000}}},
		{"Services", func() (any, error) { return client.Services(ctx, agentapi.ServiceFilter{Name: "web"}) }, agentapi.ServiceFilter{Name: "web"}, []agentapi.ServicePort{{Name: "web"}}},
		{"IPPools", func() (any, error) { return client.IPPools(ctx) }, "ippools", []agentapi.IPPool{{Name: "office"}}},
		{"Policies", func() (any, error) { return client.Policies(ctx, agentapi.PolicyFilter{Name: "web"}) }, agentapi.PolicyFilter{Name: "web"}, []agentapi.NetworkPolicy{{Name: "web"}}},
		{"ExplainPolicy", func() (any, error) { return client.ExplainPolicy(ctx, agentapi.PolicyQuestion{From: "node"}) }, agentapi.PolicyQuestion{From: "node"}, &agentapi.PolicyAnswer{Allowed: true}},
		{"Drops", func() (any, error) { return client.Drops(ctx) }, "drops", []agentapi.Drop{{Packets: 7}}},
		{"Flows", func() (any, error) { return client.Flows(ctx, agentapi.FlowFilter{Pod: "a/b"}) }, agentapi.FlowFilter{Pod: "a/b"}, &agentapi.FlowList{Buffered: 3}},
		{"Ready", func() (any, error) { return nil, client.Ready(ctx) }, "ready", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			service.got, service.err = nil, nil
			got, err := test.call()
			if err != nil {
				t.Fatal(err)
			}
			plain := []cmp.Option{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})}
			if diff := cmp.Diff(test.want, got, plain...); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]any{test.sent}, service.got, plain...); diff != "" {
				t.Errorf("arrived (-want +got):\n%s", diff)
			}

			service.err = fmt.Errorf("endpoint c1: %w", agentapi.Errorf(agentapi.CodeNotReady, "still starting"))
			_, err = test.call()
			if !agentapi.HasCode(err, agentapi.CodeNotReady) || err.Error() != "endpoint c1: still starting" {
				t.Errorf("error: got %v", err)
			}
			service.err = errors.New("disk on fire")
			if _, err = test.call(); !agentapi.HasCode(err, agentapi.CodeInternal) {
				t.Errorf("plain error: got %v, want code internal", err)
			}
		})
	}
}

func TestHandlerRejects(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		says                     string
	}{
		{"wrong method", "GET", agentapi.PathAdd, "", "no such request: GET /v1/add"},
		{"wrong method of read", "POST", agentapi.PathStatus, "{}", "no such request: POST /v1/status"},
		{"unknown path", "GET", "/v2/status", "", "no such request: GET /v2/status"},
		{"unknown field", "POST", agentapi.PathDelete, `{"containerID":"a","ifname2":"b"}`, `unknown field \"ifname2\"`},
		{"wrong type", "POST", agentapi.PathDelete, `{"containerID":1}`, "containerID"},
		{"empty", "POST", agentapi.PathDelete, "", "body is empty"},
		{"cut off", "POST", agentapi.PathDelete, `{"containerID":"a"`, "unexpected EOF"},
		{"two values", "POST", agentapi.PathDelete, `{} {}`, "more follows"},
		{"too long", "POST", agentapi.PathDelete, `{"containerID":"` + strings.Repeat("a", 5<<20) + `"}`, "too large"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			service := &echo{}
			w := httptest.NewRecorder()
			server.Handler(service).ServeHTTP(w, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
			if w.Code != 400 || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("got %d %s, want 400 %s", w.Code, w.Body, test.says)
			}
			if !strings.Contains(w.Body.String(), `"code":"invalid"`) {
				t.Errorf("body has no code: %s", w.Body)
			}
			if len(service.got) != 0 {
				t.Errorf("service was called: %v", service.got)
			}
		})
	}
}

func TestErrorsHaveAnHTTPStatus(t *testing.T) {
	statuses := map[agentapi.Code]int{
		agentapi.CodeInvalid: 400, agentapi.CodeNotFound: 500, agentapi.CodeConflict: 500, agentapi.CodePortTaken: 500, agentapi.CodeExhausted: 500,
		agentapi.CodeNotReady: 500, agentapi.CodeInternal: 500, "of a later version": 500,
	}
	for code, want := range statuses {
		w := httptest.NewRecorder()
		service := &echo{err: agentapi.Errorf(code, "no")}
		server.Handler(service).ServeHTTP(w, httptest.NewRequest("GET", agentapi.PathReady, nil))
		if w.Code != want || !strings.Contains(w.Body.String(), fmt.Sprintf(`"code":%q`, code)) {
			t.Errorf("%s: got %d %s, want %d", code, w.Code, w.Body, want)
		}
	}
}

func TestClientTimeout(t *testing.T) {
	service := &echo{wait: make(chan struct{})}
	client, _ := start(t, service)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := client.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
}

func TestClientWithoutAgent(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()

	absent := filepath.Join(dir, "absent.sock")
	if err := agentapi.NewClient(absent).Ready(ctx); !errors.Is(err, agentapi.ErrNoAgent) || !strings.Contains(err.Error(), absent) {
		t.Errorf("absent: got %v, want ErrNoAgent with path", err)
	}

	stale := filepath.Join(dir, "stale.sock")
	leaveStale(t, stale)
	if err := agentapi.NewClient(stale).Ready(ctx); !errors.Is(err, agentapi.ErrNoAgent) {
		t.Errorf("stale: got %v, want ErrNoAgent", err)
	}
}

func TestClientAgainstBrokenResponses(t *testing.T) {
	tests := []struct {
		name, answer string
		noAgent      bool
	}{
		{"silence", "", true},
		{"cut in status line", "HTTP/1.0 20", true},
		{"cut in headers", "HTTP/1.0 200 OK\r\nContent-Le", true},
		{"no body", "HTTP/1.0 200 OK\r\n\r\n", true},
		{"cut in body", "HTTP/1.0 200 OK\r\n\r\n{", true},
		{"cut in body of an error", "HTTP/1.0 500 Oh\r\n\r\n{", true},
		{"not HTTP", "SSH-2.0-OpenSSH\r\n\r\n", false},
		{"not JSON", "HTTP/1.0 200 OK\r\n\r\n<html>", false},
		{"other JSON", "HTTP/1.0 200 OK\r\n\r\n[]", false},
		{"error without message", "HTTP/1.0 500 Oh\r\nContent-Length: 2\r\n\r\n{}", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				buf := make([]byte, 4096)
				_, _ = conn.Read(buf)
				_, _ = conn.Write([]byte(test.answer))
			}()
			_, err = agentapi.NewClient(socket).Status(context.Background())
			if err == nil || errors.Is(err, agentapi.ErrNoAgent) != test.noAgent {
				t.Errorf("got %v, want an error that is ErrNoAgent: %v", err, test.noAgent)
			}
		})
	}
}

// leaveStale makes a socket as a killed process leaves it.
func leaveStale(t *testing.T, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	socket := filepath.Join(dir, "agent.sock")

	first, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, socket: 0o660} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, mode)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("directory holds %v, want only the socket", entries)
	}
	if _, err := server.Listen(socket); !errors.Is(err, server.ErrInUse) {
		t.Errorf("second listener: got %v, want ErrInUse", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("socket still exists after Close: %v", err)
	}

	leaveStale(t, socket)
	second, err := server.Listen(socket)
	if err != nil {
		t.Fatalf("stale socket is in the way: %v", err)
	}
	second.Close()
}

func TestListenLeavesOtherFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen(path); err == nil {
		t.Error("a regular file was replaced")
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("file now holds %q", data)
	}
}
