package policy

import (
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Unknown, invalid and conflicting objects.
func TestDoubt(t *testing.T) {
	newPod := func(l *Local) {
		l.Pods = append(l.Pods, LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "new"}, Addresses: addrs("10.1.1.9")})
	}
	manifests := func(l *Local) {
		newPod(l)
		l.Unlabelled = true
	}
	const ofWeb = `{podSelector: {matchLabels: {app: web}}}`
	runCases(t, []testCase{
		{
			name:     "an invalid policy isolates the pods that it selects, in its directions",
			policies: `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: nonsense}}]}]}`,
			want: `
				web > client TCP/80: no
				web > 192.168.60.11 TCP/80: yes
				web < client TCP/80: yes
				client > web TCP/80: yes`,
			problems: `NetworkPolicy shop/a: spec.egress[0].to[0].ipBlock.cidr: "nonsense" is not a CIDR such as 10.1.0.0/24; isolated: pod shop/web`,
		},
		{
			name: "other policies do not open it",
			policies: `
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{}]}]}
---
{podSelector: {}, ingress: [{}]}`,
			want: `
				web < client TCP/80: no
				client < web TCP/80: b`,
			problems: `NetworkPolicy shop/a: spec.ingress[0].from[0]: has neither an ipBlock nor a selector; isolated: pod shop/web`,
		},
		{
			name:     "a pod without its object is isolated where policies may select it",
			policies: ofWeb,
			local:    newPod,
			want: `
				10.1.1.9 < client TCP/80: no
				10.1.1.9 < 192.168.60.11 TCP/80: yes
				10.1.1.9 > client TCP/80: yes
				web < 10.1.1.9 TCP/80: no`,
		},
		{
			name:     "where they select it whatever its labels, their rules apply",
			policies: `{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}, {port: http}]}]}`,
			local:    newPod,
			want: `
				10.1.1.9 < client TCP/80: a
				10.1.1.9 < client TCP/8080: no
				web < 10.1.1.9 TCP/80: a`,
		},
		{
			name:     "where no policy may select it, it is open",
			policies: ofWeb,
			local: func(l *Local) {
				l.Pods = append(l.Pods, LocalPod{Pod: cluster.Key{Namespace: "bank", Name: "new"}, Addresses: addrs("10.1.1.9")})
			},
			want: `10.1.1.9 < client TCP/80: yes`,
		},
		{
			name:     "no selector with requirements matches unknown labels, not even DoesNotExist",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]}]}`,
			local:    newPod,
			want:     `web < 10.1.1.9 TCP/80: no`,
		},
		{
			name:     "a pod without object has no labels if it never gets any",
			policies: ofWeb + "\n---\n" + `{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}, policyTypes: [Egress]}`,
			local:    manifests,
			want: `
				10.1.1.9 < client TCP/80: yes
				10.1.1.9 > client TCP/80: no
				web < client TCP/80: no`,
		},
		{
			name:     "an object with another UID is an earlier pod's",
			policies: `{podSelector: {matchLabels: {app: client}}, ingress: [{}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: again, uid: earlier, labels: {app: client}}
spec: {nodeName: n1}
status: {podIPs: [{ip: 10.1.1.8}]}`,
			local: func(l *Local) {
				for i := range l.Pods {
					if l.Pods[i].Pod.Name == "again" {
						l.Pods[i] = LocalPod{Pod: l.Pods[i].Pod, UID: "later", Addresses: addrs("10.1.1.9")}
					}
				}
			},
			want: `
				10.1.1.9 < client TCP/80: no
				client < 10.1.1.8 TCP/80: a`,
		},
		{
			name: "of two local pods of one name, an old and a new one, only one has the labels of the object",
			policies: `
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}
---
{podSelector: {matchLabels: {app: client}}, ingress: [{}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: again, uid: later, labels: {app: client}}
spec: {nodeName: n1}
status: {podIPs: [{ip: 10.1.1.9}]}`,
			local: func(l *Local) {
				key := cluster.Key{Namespace: "shop", Name: "again"}
				l.Pods = slices.DeleteFunc(l.Pods, func(p LocalPod) bool { return p.Pod == key })
				l.Pods = append(l.Pods, LocalPod{Pod: key, UID: "earlier", Addresses: addrs("10.1.1.8")}, LocalPod{Pod: key, UID: "later", Addresses: addrs("10.1.1.9")})
			},
			want: `
				web < 10.1.1.8 TCP/80: no
				web < 10.1.1.9 TCP/80: a
				10.1.1.8 < web TCP/80: no
				10.1.1.9 < web TCP/80: b`,
		},
		{
			name: "a pod that is recreated on another node while the old one still exists here",
			policies: `
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}
---
{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: moved, uid: later, labels: {app: db}}
spec: {nodeName: n2}
status: {podIPs: [{ip: 10.1.2.8}]}`,
			local: func(l *Local) {
				l.Pods = append(l.Pods, LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "moved"}, UID: "earlier", Addresses: addrs("10.1.1.8")})
			},
			want: `
				web < 10.1.2.8 TCP/80: a
				web < 10.1.1.8 TCP/80: no
				10.1.1.8 < client TCP/80: no`,
		},
		{
			name: "without UIDs both are one pod",
			policies: `
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}
---
{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`,
			local: func(l *Local) {
				l.Pods = append(l.Pods, LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "db"}, Addresses: addrs("10.1.1.8")})
			},
			want: `
				web < db TCP/80: a
				web < 10.1.1.8 TCP/80: a
				10.1.1.8 < client TCP/80: b`,
		},
		{
			name:     "a local pod without a node in the cluster has its local addresses",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: late}}}]}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: late, labels: {app: late}}
status: {podIPs: [{ip: 10.1.2.8}]}`,
			local: func(l *Local) {
				l.Pods = append(l.Pods, LocalPod{Pod: cluster.Key{Namespace: "shop", Name: "late"}, Addresses: addrs("10.1.1.8")})
			},
			want: `
				web < 10.1.1.8 TCP/80: a
				web < 10.1.2.8 TCP/80: no`,
		},
		{
			name:     "an address of two remote pods is an unknown pod",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}, {podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}, {from: [{namespaceSelector: {}}], ports: [{port: 81}]}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: twin, labels: {app: client}}
spec: {nodeName: n2}
status: {podIPs: [{ip: 10.1.2.2}]}`,
			want: `
				web < 10.1.2.2 TCP/80: no
				web < 10.1.2.2 TCP/81: a
				web < client TCP/80: a`,
			problems: "address 10.1.2.2 is claimed by pods shop/db and shop/twin; policies treat it as an unknown pod",
		},
		{
			name:     "a local pod has the address",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: liar, labels: {app: liar}}
spec: {nodeName: n2}
status: {podIPs: [{ip: 10.1.1.3}]}`,
			want:     `web < client TCP/80: a`,
			problems: "address 10.1.1.3 is claimed by pod shop/liar and is here that of pod shop/client",
		},
		{
			name:     "no pod takes the node's address",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: liar, labels: {app: liar}}
spec: {nodeName: n2}
status: {podIPs: [{ip: 192.168.60.11}]}`,
			want:     `web < 192.168.60.11 TCP/80: yes`,
			problems: "address 192.168.60.11 of pod shop/liar is this node's own; policies treat it as the node",
		},
		{
			name:     "addresses of the node itself",
			policies: ofWeb,
			local:    func(l *Local) { l.Addresses = addrs("10.1.1.1", "::ffff:192.0.2.1") },
			want: `
				web < 10.1.1.1 TCP/80: yes
				web < 192.0.2.1 TCP/80: yes
				web < 10.1.1.5 TCP/80: no`,
		},
	})
}
