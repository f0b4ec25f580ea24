package policy

import (
	"testing"
)

// The statements of the API's documentation about which pods a NetworkPolicy selects, and what it allows.
//
// https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/network-policy-v1/
// https://kubernetes.io/docs/concepts/services-networking/network-policies/
func TestIsolation(t *testing.T) {
	runCases(t, []testCase{
		{
			name: "without policies everything is allowed",
			want: `
				web < client TCP/80: yes
				web > 203.0.113.1 UDP/53: yes`,
		},
		{
			name:     "default deny of ingress: policyTypes defaults to Ingress",
			policies: `podSelector: {}`,
			want: `
				web < client TCP/80: no
				web < db TCP/80: no
				web < 203.0.113.1 UDP/53: no
				web < db ICMP: no
				web > client TCP/80: yes
				client < web TCP/80: no
				web/6 < client/6 TCP/80: no
				bank/teller < web TCP/80: yes`,
		},
		{
			name:     "policyTypes default to both if there are rules for egress",
			policies: `{podSelector: {}, egress: [{}]}`,
			want: `
				web < client TCP/80: no
				web > client TCP/80: a
				web > 203.0.113.1 ICMP: a`,
		},
		{
			name:     "rules of a direction that policyTypes leaves out do not apply",
			policies: `{podSelector: {}, policyTypes: [Ingress], egress: [{to: [{podSelector: {}}]}]}`,
			want: `
				web < client TCP/80: no
				web > 203.0.113.1 TCP/80: yes`,
		},
		{
			name:     "default deny of egress",
			policies: `{podSelector: {}, policyTypes: [Egress]}`,
			want: `
				web < client TCP/80: yes
				web > client TCP/80: no
				web > 203.0.113.1 UDP/53: no`,
		},
		{
			name:     "default deny of both",
			policies: `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
			want: `
				web < client TCP/80: no
				web > client TCP/80: no`,
		},
		{
			name:     "allow all ingress: an empty rule",
			policies: `{podSelector: {}, ingress: [{}]}`,
			want: `
				web < client TCP/80: a
				web < 203.0.113.1 SCTP/5: a
				web < 203.0.113.1 ICMP: a
				web/6 < bank/client/6 UDP/80: a`,
		},
		{
			name: "only pods that the selector selects are isolated, and only in the policy's namespace",
			policies: `
podSelector: {matchLabels: {app: web}}
---
podSelector: {matchLabels: {app: teller}}`,
			want: `
				web < client TCP/80: no
				client < web TCP/80: yes
				bank/teller < client TCP/80: yes`,
		},
		{
			name: "policies add up",
			policies: `
{podSelector: {}}
---
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}
---
{podSelector: {matchLabels: {tier: front}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 81}]}]}`,
			want: `
				web < client TCP/80: b
				web < client TCP/81: no
				web < db TCP/80: no
				web < db TCP/81: c
				client < web TCP/80: no`,
		},
		{
			name: "both ends have to allow it, each by its own policies",
			policies: `
{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}
---
{podSelector: {matchLabels: {app: web}}}`,
			want: `
				client > web TCP/80: a
				web < client TCP/80: no
				client > db TCP/80: no`,
		},
		{
			name:     "the node reaches its pods and is reached by them",
			policies: `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
			want: `
				web < 192.168.60.11 TCP/80: yes
				web > 192.168.60.11 UDP/53: yes
				web < 192.168.60.12 TCP/80: no`,
		},
	})
}

// Peers.
func TestPeers(t *testing.T) {
	ingressFrom := func(peers string) string {
		return "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [" + peers + "]}]}"
	}
	runCases(t, []testCase{
		{
			name:     "podSelector: pods of the policy's namespace",
			policies: ingressFrom(`{podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: no
				web < db TCP/80: no
				web/6 < client/6 TCP/80: a
				web/6 < bank/client/6 TCP/80: no
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "an empty podSelector: all pods of the policy's namespace, and of no other",
			policies: ingressFrom(`{podSelector: {}}`),
			want: `
				web < client TCP/80: a
				web < db TCP/80: a
				web < bank/client TCP/80: no
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "namespaceSelector: all pods of namespaces",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}}`),
			want: `
				web < client TCP/80: no
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: a
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "an empty namespaceSelector: all pods of all namespaces, and no other address",
			policies: ingressFrom(`{namespaceSelector: {}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web/6 < bank/client/6 TCP/80: a
				web < 203.0.113.1 TCP/80: no
				web < 192.168.60.12 TCP/80: no
				web < 10.1.2.9 TCP/80: no`,
		},
		{
			name:     "both in one peer: such pods in such namespaces",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}, podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: no
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: no`,
		},
		{
			name:     "both as two peers: either",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}}, {podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: a
				web < db TCP/80: no`,
		},
		{
			name:     "an empty namespaceSelector with a podSelector: such pods in any namespace",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: no`,
		},
		{
			name:     "the namespace's name is a label that every namespace has",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "a namespace without object has its name too",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: lost}}}`),
			more: `
kind: Pod
metadata: {namespace: lost, name: p}
status: {podIPs: [{ip: 10.1.2.20}]}`,
			want: `
				web < lost/p TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: In",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [db, teller, db]}]}}`),
			want: `
				web < db TCP/80: a
				web < bank/teller TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: NotIn matches without the label, too",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [back]}]}}`),
			want: `
				web < db TCP/80: no
				web < client TCP/80: a
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "matchExpressions: Exists",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: DoesNotExist",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: role, operator: DoesNotExist}]}}`),
			want: `
				web < bank/client TCP/80: no
				web < client TCP/80: a`,
		},
		{
			name:     "all requirements have to be met",
			policies: ingressFrom(`{namespaceSelector: {matchExpressions: [{key: level, operator: In, values: [low, high]}]}, podSelector: {matchLabels: {app: client}, matchExpressions: [{key: role, operator: Exists}]}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "selectors never select pods with hostNetwork, nor ended pods",
			policies: ingressFrom(`{podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < 192.168.60.12 TCP/80: no
				web < 10.1.2.9 TCP/80: no`,
		},
		{
			name:     "egress uses the same selectors",
			policies: `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {matchLabels: {team: money}}}]}]}`,
			want: `
				web > db TCP/80: a
				web > bank/teller TCP/80: a
				web > client TCP/80: no
				web > 203.0.113.1 TCP/80: no
				web < client TCP/80: yes`,
		},
	})
}
