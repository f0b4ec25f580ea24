package policy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster"
)

func number(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func in(key string, values ...string) cluster.Selector {
	return cluster.Selector{Requirements: []cluster.Requirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

// thousand is 1,000 policies and 1,000 pods in 50 namespaces: each policy selects the pods of one of 20 applications,
// and allows two others, a namespace, and a block. here is how many of the pods are on node n1.
func thousand(here int) (*cluster.Snapshot, Local) {
	s := &cluster.Snapshot{}
	for n := range 50 {
		namespace := fmt.Sprintf("ns-%02d", n)
		s.Namespaces = append(s.Namespaces, &cluster.Namespace{Name: namespace, Labels: cluster.NewLabels(map[string]string{
			"kubernetes.io/metadata.name": namespace, "team": fmt.Sprint(n % 7),
		})})
		for i := range 20 {
			node := "n2"
			if s.Pods.Len() < here {
				node = "n1"
			}
			s.Pods = withPod(s.Pods, &cluster.Pod{
				Namespace: namespace, Name: fmt.Sprintf("pod-%02d", i), Node: node, Addresses: []netip.Addr{number(10<<24 | uint32(n*256+i))},
				Labels: cluster.NewLabels(map[string]string{"app": fmt.Sprint(i), "tier": fmt.Sprint(i % 3), "pod-template-hash": "5d8f"}),
				Ports:  []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
			})
			team, one, other := in("team", fmt.Sprint(i%7)), in("app", fmt.Sprint((i+1)%20)), in("app", fmt.Sprint((i+2)%20))
			s.NetworkPolicies = append(s.NetworkPolicies, &cluster.NetworkPolicy{
				Namespace: namespace, Name: fmt.Sprintf("policy-%02d", i), Pods: in("app", fmt.Sprint(i)), IsolatesIngress: true, IsolatesEgress: true,
				Ingress: []cluster.PolicyRule{
					{Peers: []cluster.PolicyPeer{{Pods: &one}, {Pods: &other}}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Name: "http"}}},
					{Peers: []cluster.PolicyPeer{{Namespaces: &team}, {Block: netip.MustParsePrefix("192.0.2.0/24")}}, Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, First: 9000, Last: 9100}}},
				},
				Egress: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Namespaces: &cluster.Selector{}}}, Ports: []cluster.PolicyPort{{Protocol: cluster.UDP, First: 53, Last: 53}}}},
			})
		}
	}
	sortSnapshot(s)
	return s, localTo("n1", s)
}

// An agent that starts on a node of a large cluster.
func BenchmarkThousand(b *testing.B) {
	for _, here := range []int{100, 1000} {
		b.Run(fmt.Sprintf("local=%d", here), func(b *testing.B) {
			s, local := thousand(here)
			b.ReportAllocs()
			for b.Loop() {
				t, _ := NewCompiler("n1").Compile(s, local)
				b.ReportMetric(float64(len(t.Policies)), "entries")
				b.ReportMetric(float64(len(t.Ports)), "ports")
			}
		})
	}
}

// A pod gets another label, which makes it a peer of others, and then loses it.
func BenchmarkLabelChange(b *testing.B) {
	for _, here := range []int{100, 1000} {
		for _, which := range []string{"peer", "subject"} {
			b.Run(fmt.Sprintf("local=%d/of=%s", here, which), func(b *testing.B) {
				s, local := thousand(here)
				at := map[string]int{"peer": 999, "subject": 0}[which]
				changed, pod := *s, *s.Pods.Slice()[at]
				pod.Labels = cluster.NewLabels(map[string]string{"app": "3", "tier": "0"})
				changed.Pods = withPod(s.Pods, &pod)
				snapshots := [2]*cluster.Snapshot{&changed, s}
				c := NewCompiler("n1")
				c.Compile(s, local)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c.Compile(snapshots[i%2], local)
				}
			})
		}
	}
}

// blocks is a policy of one pod with n ipBlocks, of which a third are prefixes and some have an exception. first is
// the first address.
func blocks(n int, first uint32) *cluster.NetworkPolicy {
	p := &cluster.NetworkPolicy{Namespace: "ns-00", Name: "blocks", Pods: in("app", "0"), IsolatesIngress: true}
	var r cluster.PolicyRule
	for i := range n {
		at := first + uint32(i)*256
		peer := cluster.PolicyPeer{Block: netip.PrefixFrom(number(at), 32)}
		if i%3 == 0 {
			peer.Block = netip.PrefixFrom(number(at), 24)
			if i%2 == 0 {
				peer.Except = []netip.Prefix{netip.PrefixFrom(number(at+128), 28)}
			}
		}
		r.Peers = append(r.Peers, peer)
	}
	p.Ingress = []cluster.PolicyRule{r}
	return p
}

func withBlocks(s *cluster.Snapshot, p *cluster.NetworkPolicy) *cluster.Snapshot {
	c := *s
	c.NetworkPolicies = append([]*cluster.NetworkPolicy{p}, s.NetworkPolicies...)
	return &c
}

// 100,000 ipBlocks: compiled from scratch, with another one, and after a label change.
func BenchmarkBlocks(b *testing.B) {
	s, local := thousand(100)
	all := withBlocks(s, blocks(100_000, 20<<24))
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t, _ := NewCompiler("n1").Compile(all, local)
			if n := len(t.Blocks); n < 100_000 {
				b.Fatalf("%d blocks", n)
			}
		}
	})
	b.Run("one more", func(b *testing.B) {
		snapshots := [2]*cluster.Snapshot{withBlocks(s, blocks(100_001, 20<<24)), all}
		c := NewCompiler("n1")
		c.Compile(all, local)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.Compile(snapshots[i%2], local)
		}
	})
	b.Run("label", func(b *testing.B) {
		changed, pod := *all, *s.Pods.Slice()[999]
		pod.Labels = cluster.NewLabels(map[string]string{"app": "3"})
		changed.Pods = withPod(s.Pods, &pod)
		snapshots := [2]*cluster.Snapshot{&changed, all}
		c := NewCompiler("n1")
		c.Compile(all, local)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.Compile(snapshots[i%2], local)
		}
	})
}

// The memory of Tables and Compiler, beyond the objects themselves.
func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s, local := thousand(100)
	for _, of := range []struct {
		name string
		s    *cluster.Snapshot
	}{{"thousand", s}, {"blocks=100000", withBlocks(s, blocks(100_000, 20<<24))}} {
		b.Run(of.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				c := NewCompiler("n1")
				t, _ := c.Compile(of.s, local)
				b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
				runtime.KeepAlive(t)
				runtime.KeepAlive(c)
			}
		})
	}
}
