package evaluate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The explanations, and the decisions they are made from.
func TestExplain(t *testing.T) {
	s := with(t,
		`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}, {ports: [{port: 443}]}]}`,
		`{podSelector: {}, policyTypes: [Ingress, Egress]}`,
		`{podSelector: {matchLabels: {app: new}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]} # wrong`)
	for _, c := range []struct{ traffic, explained string }{
		{"dev/web > prod/web TCP 80", `
			not allowed by the destination
			egress of dev/web: allowed, no policy selects it in this direction
			ingress of prod/web: not allowed by any of the policies that select it: prod/p0, prod/p1
			  prod/p0 spec.ingress[0] allows the port, but not the peer
			  prod/p0 spec.ingress[1] allows the peer, but not the port`},
		{"prod/db > prod/web TCP 81", `
			not allowed, neither by the source nor by the destination
			egress of prod/db: not allowed by any of the policies that select it: prod/p1
			  none of their rules allows the peer or the port
			ingress of prod/web: not allowed by any of the policies that select it: prod/p0, prod/p1
			  prod/p0 spec.ingress[0] allows the peer, but not the port
			  prod/p0 spec.ingress[1] allows the peer, but not the port`},
		{"203.0.113.7 > prod/web TCP 443", `
			allowed
			egress: allowed, this end is not a pod that policies can select
			ingress of prod/web: allowed
			  prod/p0 spec.ingress[1]`},
		{"prod/web > 203.0.113.7 TCP 443", `
			not allowed by the source
			egress of prod/web: not allowed by any of the policies that select it: prod/p1
			  none of their rules allows the peer or the port
			ingress: allowed, this end is not a pod that policies can select`},
		{"prod/web > prod/web TCP 81", `
			allowed
			egress of prod/web: always allowed, the other end is the pod itself
			ingress of prod/web: always allowed, the other end is the pod itself`},
		{"node > prod/web TCP 81", `
			allowed
			egress: allowed, this end is not a pod that policies can select
			ingress of prod/web: always allowed, the other end is the pod's own node`},
		{"dev/web > prod/new TCP 81", `
			not allowed by the destination
			egress of dev/web: allowed, no policy selects it in this direction
			ingress of prod/new: not allowed, since policies that select it are invalid: prod/p2`},
		{"prod/missing > prod/web TCP 81", `
			find the source: there is no pod prod/missing`},
		{"dev/web > prod/web@10.1.1.3 TCP 81", `
			find the destination: 10.1.1.3 is not an address of pod prod/web`},
	} {
		want := strings.Split(strings.ReplaceAll(strings.TrimSpace(c.explained), "\t", ""), "\n")
		if diff := cmp.Diff(want, Evaluate(s, traffic(t, c.traffic)).Explain()); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", c.traffic, diff)
		}
	}

	v := Evaluate(s, traffic(t, "203.0.113.7 > prod/web TCP 443"))
	want := Decision{
		Direction: Ingress, Pod: cluster.Key{Namespace: "prod", Name: "web"}, Node: "a", Allowed: true, Reason: ReasonRule,
		Isolating: []cluster.Key{{Namespace: "prod", Name: "p0"}, {Namespace: "prod", Name: "p1"}},
		Rules:     []Rule{{cluster.Key{Namespace: "prod", Name: "p0"}, Ingress, 1}},
	}
	if diff := cmp.Diff(want, v.Ingress); diff != "" {
		t.Errorf("decision (-expected +got):\n%s", diff)
	}
}

// A pod's address may be omitted; it is of the other end's family then.
func TestAddressOfTheOtherFamily(t *testing.T) {
	s := with(t, `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "fd00:1:2::/64"}}]}]}`)
	for traffic4or6, allowed := range map[string]bool{
		"dev/web > prod/db@fd00:1:2::2 TCP 1": true, "dev/web > prod/db@10.1.2.2 TCP 1": false, "dev/web > prod/db TCP 1": false,
	} {
		if v := Evaluate(s, traffic(t, traffic4or6)); v.Err != nil || v.Allowed != allowed {
			t.Errorf("%s: %v", traffic4or6, v.Explain())
		}
	}
	if v := Evaluate(s, traffic(t, "prod/new > prod/web TCP 1")); v.Err != nil || v.Allowed {
		t.Errorf("a pod without addresses: %v", v.Explain())
	}
	if v := Evaluate(s, Traffic{Destination: endpoint(t, "prod/web")}); v.Err == nil {
		t.Error("an empty end has a verdict")
	}
}

// Explain describes the decisions in a few lines, the summary first. The agent has its own text for users.
func (v Verdict) Explain() []string {
	if v.Err != nil {
		return []string{v.Err.Error()}
	}
	summary := "allowed"
	switch {
	case !v.Egress.Allowed && !v.Ingress.Allowed:
		summary = "not allowed, neither by the source nor by the destination"
	case !v.Egress.Allowed:
		summary = "not allowed by the source"
	case !v.Ingress.Allowed:
		summary = "not allowed by the destination"
	}
	return append(append([]string{summary}, v.Egress.Explain()...), v.Ingress.Explain()...)
}

// Explain describes the decision in one line, and one more for each rule.
func (j Decision) Explain() []string {
	about := fmt.Sprintf("%s of %s: ", j.Direction, j.Pod)
	switch j.Reason {
	case ReasonNoPod:
		return []string{fmt.Sprintf("%s: allowed, this end is %s", j.Direction, j.Reason)}
	case ReasonItself, ReasonNode:
		return []string{about + "always allowed, the other end is " + string(j.Reason)}
	case ReasonNotIsolated:
		return []string{about + "allowed, no policy selects it in this direction"}
	case ReasonRule:
		return append([]string{about + "allowed"}, indented(j.Rules)...)
	case ReasonInvalid:
		return []string{about + "not allowed, since policies that select it are invalid: " + joined(j.Invalid)}
	}
	lines := []string{about + "not allowed by any of the policies that select it: " + joined(j.Isolating)}
	if len(j.Near) == 0 {
		return append(lines, "  none of their rules allows the peer or the port")
	}
	return append(lines, indented(j.Near)...)
}

func indented[T fmt.Stringer](all []T) []string {
	var lines []string
	for _, s := range all {
		lines = append(lines, "  "+s.String())
	}
	return lines
}

func joined(keys []cluster.Key) string {
	var all []string
	for _, key := range keys {
		all = append(all, key.String())
	}
	return strings.Join(all, ", ")
}
