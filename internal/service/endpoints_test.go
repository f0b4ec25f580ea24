package service

import "testing"

// Traffic policies.
//
// https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-policies
func TestPolicies(t *testing.T) {
	runCases(t, []testCase{
		{
			name:    "internalTrafficPolicy Cluster is the default",
			service: `spec: {clusterIPs: [10.96.0.9], internalTrafficPolicy: Cluster, ports: [{name: http, port: 80}]}`,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass`,
		},
		{
			name:    "internalTrafficPolicy Local: endpoints of this node, for the cluster IP only",
			service: `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080`,
		},
		{
			name:    "internalTrafficPolicy Local and no endpoint here: drops",
			node:    func(n *NodeConfig) { n.Name = "n3" },
			service: `spec: {clusterIPs: [10.96.0.9], internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			want:    `http ClusterIP 10.96.0.9:80/TCP | drop | pass`,
		},
		{
			name:    "internalTrafficPolicy Local and no endpoint at all: rejects",
			service: `spec: {clusterIPs: [10.96.0.9], internalTrafficPolicy: Local, ports: [{name: other, port: 80}]}`,
			want:    `other ClusterIP 10.96.0.9:80/TCP | refuse | pass`,
		},
		{
			name: "externalTrafficPolicy Local: from the wire to this node's endpoints, from inside to all",
			service: `spec: {type: LoadBalancer, clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], externalTrafficPolicy: Local, healthCheckNodePort: 30100, ports: [{name: http, port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}]}}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080
				http NodePort 192.168.60.11:30080/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080
				http NodePort [fd00:60::11]:30080/TCP | [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080 | maglev [fd00:1::2]:8080
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080`,
			health: "shop/web :30100 1",
		},
		{
			name:    "externalTrafficPolicy Local and no endpoint here: drops external packets",
			node:    func(n *NodeConfig) { n.Name = "n3" },
			service: `spec: {type: LoadBalancer, externalIPs: [198.51.100.32], externalTrafficPolicy: Local, healthCheckNodePort: 30100, ports: [{name: http, port: 80}]}`,
			want:    `http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | drop`,
			health:  "shop/web :30100 0",
		},
		{
			name:    "both Local",
			service: `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], externalTrafficPolicy: Local, internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "endpoints on no node are local to none",
			service: `spec: {externalIPs: [198.51.100.32], externalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			slices:  "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: [{addresses: [10.1.1.2]}]",
			want:    `http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | drop`,
		},
		{
			name:    "healthCheckNodePort counts ready pods of this node, whatever their ports and families",
			service: `spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30100, ports: [{name: http, port: 80}]}`,
			slices: `
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 53}]
endpoints: [{addresses: [10.1.1.2], nodeName: n1}, {addresses: [10.1.1.3], nodeName: n1}, {addresses: [10.1.1.4], nodeName: n1, conditions: {ready: false, serving: true, terminating: true}}]
---
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ['fd00:1::2'], nodeName: n1}]
---
addressType: IPv4
ports: [{name: http, port: 9090}]
endpoints: [{addresses: [10.1.1.2], nodeName: n1}, {addresses: [10.1.2.2], nodeName: n2}]`,
			health: "shop/web :30100 2",
		},
		{
			name:    "healthCheckNodePort is for Local only",
			service: `spec: {type: LoadBalancer, healthCheckNodePort: 30100, ports: [{name: http, port: 80}]}`,
		},
		{
			name:    "sessionAffinity: three hours by default, for all frontends",
			service: `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], sessionAffinity: ClientIP, ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass | affinity 3h0m0s
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080 | affinity 3h0m0s`,
		},
		{
			name:    "sessionAffinity with its timeout",
			service: `spec: {clusterIPs: [10.96.0.9], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 90}}, ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass | affinity 1m30s`,
		},
		{
			name:    "sessionAffinity None",
			service: `spec: {clusterIPs: [10.96.0.9], sessionAffinity: None, ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass`,
		},
	})
}

// Conditions of endpoints.
//
// https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions
// https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints
func TestConditions(t *testing.T) {
	const both = `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], externalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`
	of := func(endpoints string) string {
		return "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints:\n" + endpoints
	}
	runCases(t, []testCase{
		{
			name:    "unset conditions mean ready; endpoints that are not ready get nothing",
			service: both,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n1}
- {addresses: [10.1.1.3], nodeName: n1, conditions: {ready: false, serving: false, terminating: false}}
- {addresses: [10.1.2.2], nodeName: n2, conditions: {ready: true}}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "terminating ones get nothing while others are ready",
			service: both,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n1}
- {addresses: [10.1.1.3], nodeName: n1, conditions: {ready: false, serving: true, terminating: true}}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "terminating ones that serve are the last resort; those that do not serve get nothing",
			service: both,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n1, conditions: {ready: false, serving: false, terminating: true}}
- {addresses: [10.1.1.3], nodeName: n1, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.1.2.2], nodeName: n2, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.1.2.3], nodeName: n2, conditions: {ready: false, serving: true}}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.3:8080 10.1.2.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.3:8080 10.1.2.2:8080 | maglev 10.1.1.3:8080`,
		},
		{
			name:    "the last resort is for each policy by itself",
			service: both,
			slices: of(`
- {addresses: [10.1.1.3], nodeName: n1, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.1.2.2], nodeName: n2}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.2.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.2.2:8080 | maglev 10.1.1.3:8080`,
		},
		{
			name:    "none is left",
			service: both,
			slices:  of(`- {addresses: [10.1.1.2], nodeName: n1, conditions: {ready: false, serving: false, terminating: true}}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | refuse | pass
				http ExternalIP 198.51.100.32:80/TCP | refuse | refuse`,
		},
		{
			name:    "publishNotReadyAddresses: the slices say that all are ready, terminating ones too",
			service: `spec: {clusterIPs: [10.96.0.9], publishNotReadyAddresses: true, ports: [{name: http, port: 80}]}`,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n1, conditions: {ready: true, serving: false}}
- {addresses: [10.1.1.3], nodeName: n1, conditions: {ready: true, serving: false, terminating: true}}`),
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.1.3:8080 | pass`,
		},
		{
			name:    "an endpoint in two slices is one",
			service: both,
			slices: of("- {addresses: [10.1.1.2], nodeName: n1}") + "\n---\n" +
				of("- {addresses: [10.1.1.2], nodeName: n1}\n- {addresses: [10.1.1.1], nodeName: n1}"),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.1:8080 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.1:8080 10.1.1.2:8080 | maglev 10.1.1.1:8080 10.1.1.2:8080`,
		},
		{
			name:    "an address that a terminating pod had and a new one on this node has belongs to the new one",
			service: both,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n2, conditions: {ready: true, serving: true, terminating: true}}
- {addresses: [10.1.1.2], nodeName: n1}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "only the first address of an endpoint counts",
			service: both,
			slices:  of("- {addresses: [10.1.1.2, 10.1.1.3], nodeName: n1}"),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "names (FQDN) are not endpoints",
			service: both,
			slices:  "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: []",
			want: `
				http ClusterIP 10.96.0.9:80/TCP | refuse | pass
				http ExternalIP 198.51.100.32:80/TCP | refuse | refuse`,
		},
	})
}

// Topology hints, which trafficDistribution and topology aware routing put into slices.
//
// https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing/#safeguards
// https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-distribution
func TestHints(t *testing.T) {
	const service = `spec: {clusterIPs: [10.96.0.9], trafficDistribution: PreferSameZone, ports: [{name: http, port: 80}]}`
	of := func(endpoints string) string {
		return "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints:\n" + endpoints
	}
	const zones = `
- {addresses: [10.1.1.2], nodeName: n1, zone: z1, hints: {forZones: [{name: z1}]}}
- {addresses: [10.1.2.2], nodeName: n2, zone: z2, hints: {forZones: [{name: z2}]}}
- {addresses: [10.1.3.2], nodeName: n3, zone: z3, hints: {forZones: [{name: z3}, {name: z1}]}}`
	const nodes = `
- {addresses: [10.1.1.2], nodeName: n1, hints: {forNodes: [{name: n1}], forZones: [{name: z1}]}}
- {addresses: [10.1.2.2], nodeName: n2, hints: {forNodes: [{name: n2}], forZones: [{name: z1}]}}
- {addresses: [10.1.3.2], nodeName: n3, hints: {forNodes: [{name: n3}], forZones: [{name: z2}]}}`
	const all = `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.3.2:8080 | pass`
	runCases(t, []testCase{
		{name: "zones: those for this node's zone", service: service, slices: of(zones),
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.3.2:8080 | pass`},
		{name: "zones: none for this node's zone", service: service, slices: of(zones), node: func(n *NodeConfig) { n.Zone = "z9" }, want: all},
		{name: "zones: this node is in no zone", service: service, slices: of(zones), node: func(n *NodeConfig) { n.Zone = "" }, want: all},
		{name: "zones: one ready endpoint has no hint", service: service, slices: of(zones + "\n- {addresses: [10.1.4.2]}"),
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.3.2:8080 10.1.4.2:8080 | pass`},
		{name: "zones: an endpoint that is not ready needs no hint", service: service,
			slices: of(zones + "\n- {addresses: [10.1.4.2], conditions: {ready: false}}\n- {addresses: [10.1.4.3], conditions: {ready: false, serving: true, terminating: true}}"),
			want:   `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.3.2:8080 | pass`},
		{name: "zones: hints of endpoints that are not ready do not count", service: service,
			slices: of("- {addresses: [10.1.1.2], hints: {forZones: [{name: z1}]}, conditions: {ready: false}}\n- {addresses: [10.1.2.2], hints: {forZones: [{name: z2}]}}"),
			want:   `http ClusterIP 10.96.0.9:80/TCP | 10.1.2.2:8080 | pass`},
		{name: "zones: the last resort has no hints", service: service,
			slices: of("- {addresses: [10.1.1.2], hints: {forZones: [{name: z1}]}, conditions: {ready: false, serving: true, terminating: true}}\n" +
				"- {addresses: [10.1.2.2], hints: {forZones: [{name: z2}]}, conditions: {ready: false, serving: true, terminating: true}}"),
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 | pass`},
		{name: "nodes: before zones", service: service, slices: of(nodes), want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass`},
		{name: "nodes: none for this node, so zones count", service: service, slices: of(nodes), node: func(n *NodeConfig) { n.Name = "n9" },
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 | pass`},
		{name: "nodes: one ready endpoint has no hint for nodes, so zones count", service: service,
			slices: of(nodes + "\n- {addresses: [10.1.4.2], hints: {forZones: [{name: z2}]}}"),
			want:   `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 | pass`},
		{name: "nodes: neither for this node nor its zone", service: service, slices: of(nodes),
			node: func(n *NodeConfig) { n.Name, n.Zone = "n9", "z9" }, want: all},
		{
			name:    "hints apply to the policy Cluster: Local has its own endpoints, and external packets follow the hints, too",
			service: `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			slices: of(`
- {addresses: [10.1.1.2], nodeName: n1, hints: {forZones: [{name: z2}]}}
- {addresses: [10.1.2.2], nodeName: n2, hints: {forZones: [{name: z1}]}}`),
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.2.2:8080 | maglev 10.1.2.2:8080`,
		},
	})
}
