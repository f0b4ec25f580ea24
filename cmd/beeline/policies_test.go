package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
)

// explainer is an agent with one explanation of policies.
type explainer struct {
	agentapi.Service
	requested agentapi.PolicyQuestion
	answer    *agentapi.PolicyAnswer
}

func (e *explainer) ExplainPolicy(_ context.Context, q agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	e.requested = q
	if e.answer == nil {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "there is no pod %s", q.From)
	}
	return e.answer, nil
}

func (e *explainer) Policies(_ context.Context, which agentapi.PolicyFilter) ([]agentapi.NetworkPolicy, error) {
	if which.Name == "none" || which.Namespace == "none" {
		return nil, nil
	}
	return []agentapi.NetworkPolicy{{
		Namespace: "shop", Name: "web", Pods: []string{"shop/a", "shop/b", "shop/c", "shop/d"}, Directions: []string{agentapi.DirectionEgress}, IngressRules: 3, EgressRules: 2,
		State: agentapi.PolicyClosed, Reason: "a field is invalid",
	}, {
		Namespace: "shop", Name: "db", Directions: []string{agentapi.DirectionIngress}, State: agentapi.PolicyActive,
		Since: time.Date(2026, time.March, 1, 10, 0, 0, 0, time.FixedZone("", 3600)),
	}}, nil
}

func (e *explainer) Services(_ context.Context, which agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	if which.Name == "none" {
		return nil, nil
	}
	web := agentapi.ServicePort{Namespace: "shop", Name: "web", Frontends: []agentapi.Frontend{{Kind: "ClusterIP"}, {Kind: "HostPort"}}}
	db := agentapi.ServicePort{Namespace: "shop", Name: "db", Frontends: []agentapi.Frontend{{Kind: "HostPort"}}}
	return []agentapi.ServicePort{web, web, db}, nil
}

func (e *explainer) Endpoints(context.Context) ([]agentapi.Endpoint, error) {
	return []agentapi.Endpoint{{Pod: agentapi.PodRef{Namespace: "shop", Name: "a"}}, {Attachment: agentapi.Attachment{ContainerID: "c0123456789abcdef"}}}, nil
}

// socket serves an explainer until the test ends.
func (e *explainer) socket(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: server.Handler(e)}
	go func() { _ = s.Serve(l) }() // until it is closed
	t.Cleanup(func() { s.Close() })
	return socket
}

// The arguments become the request, and the result the exit code.
func TestPolicyExplain(t *testing.T) {
	allowed := &agentapi.PolicyAnswer{Allowed: true, Paths: []agentapi.PolicyPath{{From: "a", To: "b", Allowed: true}}}
	denied := &agentapi.PolicyAnswer{Paths: []agentapi.PolicyPath{{From: "a", To: "b", Ingress: agentapi.PolicyDecision{
		Pod: "shop/web", Reason: "no rule allows it", Policies: []string{"shop/p"}, Near: []string{"shop/p spec.ingress[0] allows the peer, but not the port"},
	}}}}
	backend := &agentapi.PolicyAnswer{Allowed: true, Paths: []agentapi.PolicyPath{{From: "a", To: "b port 8080/TCP", Service: "shop/web", Allowed: true}}}
	for _, c := range []struct {
		args      []string
		answer    *agentapi.PolicyAnswer
		requested agentapi.PolicyQuestion
		code      int
		want      string
	}{
		{[]string{"shop/a", "shop/b:80"}, allowed, agentapi.PolicyQuestion{From: "shop/a", To: "shop/b", Port: "80", Protocol: "TCP"}, 0, "a to b: allowed"},
		{[]string{"fd00::1", "[fd00::2]:http", "--protocol=udp"}, denied, agentapi.PolicyQuestion{From: "fd00::1", To: "fd00::2", Port: "http", Protocol: "UDP"}, 1, "but not the port"},
		{[]string{"node", "10.0.0.1:443"}, denied, agentapi.PolicyQuestion{From: "node", To: "10.0.0.1", Port: "443", Protocol: "TCP"}, 1, "NOT ALLOWED"},
		{[]string{"shop/a", "10.96.0.5:80"}, backend, agentapi.PolicyQuestion{From: "shop/a", To: "10.96.0.5", Port: "80", Protocol: "TCP"}, 0, "a to b port 8080/TCP, a backend of Service shop/web: allowed"},
		{[]string{"shop/a", "fd00::2", "--protocol=ICMP"}, allowed, agentapi.PolicyQuestion{From: "shop/a", To: "fd00::2", Protocol: "ICMP"}, 0, ""},
		{[]string{"shop/a", "shop/b:80", "-o", "json"}, denied, agentapi.PolicyQuestion{From: "shop/a", To: "shop/b", Port: "80", Protocol: "TCP"}, 1, `"allowed": false`},
		{[]string{"shop/gone", "shop/b:80"}, nil, agentapi.PolicyQuestion{From: "shop/gone", To: "shop/b", Port: "80", Protocol: "TCP"}, 2, "there is no pod shop/gone"},
		{[]string{"shop/a"}, allowed, agentapi.PolicyQuestion{}, 2, "usage: beeline policy explain"},
		{[]string{"shop/a", "shop/b:80", "--nonsense"}, allowed, agentapi.PolicyQuestion{}, 2, "nonsense"},
	} {
		j := &explainer{answer: c.answer}
		code, stdout, stderr := beeline(t, append([]string{"policy", "explain", "--socket", j.socket(t)}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) || j.requested != c.requested {
			t.Errorf("%q: exit code %d, requested %+v, printed\n%s%s", c.args, code, j.requested, stdout, stderr)
		}
	}
}

// The output has the other end as policies see it, and marks a backend that gets no connection.
func TestPolicyExplainForwarded(t *testing.T) {
	allowed := agentapi.PolicyDecision{Pod: "shop/a", Allowed: true, Reason: "a rule allows it"}
	denied := agentapi.PolicyDecision{Pod: "shop/web", Reason: "no rule allows it"}
	answer := &agentapi.PolicyAnswer{Allowed: true, Paths: []agentapi.PolicyPath{
		{From: "shop/a", To: "b port 8080/TCP", Service: "shop/web", SentTo: "192.0.2.2:30080", SeenAs: "192.0.2.2", Allowed: true, Egress: allowed, Ingress: allowed},
		{From: "shop/a", To: "c port 8080/TCP", Service: "shop/web", SentTo: "192.0.2.2:30080", Unused: true, Egress: agentapi.PolicyDecision{Allowed: true, Reason: "none"}, Ingress: denied},
	}}
	code, stdout, stderr := beeline(t, "policy", "explain", "--socket", (&explainer{answer: answer}).socket(t), "shop/a", "192.0.2.2:30080")
	want := `shop/a to b port 8080/TCP, a backend of Service shop/web: allowed
  egress of shop/a to 192.0.2.2:30080: allowed: a rule allows it
  ingress of shop/a from 192.0.2.2: allowed: a rule allows it

shop/a to c port 8080/TCP, a backend of Service shop/web (gets none of these connections now): NOT ALLOWED
  egress: allowed: none
  ingress of shop/web: not allowed: no rule allows it
`
	if code != 0 || stdout != want {
		t.Errorf("exit code %d, %s, printed\n%s\nwant\n%s", code, stderr, stdout, want)
	}
}

// Without an agent the exit code is not that of a denied connection.
func TestPolicyExplainWithoutAgent(t *testing.T) {
	code, _, stderr := beeline(t, "policy", "explain", "--socket", filepath.Join(t.TempDir(), "none.sock"), "shop/a", "shop/b:80")
	if code != 2 || !strings.Contains(stderr, "is `beeline-agent run` running") {
		t.Errorf("exit code %d, printed %s", code, stderr)
	}
}

func TestPoliciesStateAndPods(t *testing.T) {
	code, stdout, stderr := beeline(t, "policies", "--socket", (&explainer{answer: nil}).socket(t))
	for _, word := range []string{"shop/web", "egress", "  2  ", "a, b, c, and 1 more", "closed: a field is invalid"} {
		if code != 0 || !strings.Contains(stdout, word) {
			t.Errorf("no %q, exit code %d, in\n%s%s", word, code, stdout, stderr)
		}
	}
}

// The status has NetworkPolicies only where the node enforces them.
func TestStatusOfPolicies(t *testing.T) {
	s := &agentapi.Status{Maps: []agentapi.Map{{Name: "policies", MaxEntries: 99}}, Policy: agentapi.PolicyStatus{Policies: 7}}
	if rows := policyRows(s); len(rows) != 1 {
		t.Errorf("rows %q", rows)
	}
	s.Policy.Enforced = true
	var out strings.Builder
	if err := printStatus(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"NetworkPolicies", "not synced", "99"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("no %q in\n%s", word, &out)
		}
	}
}
