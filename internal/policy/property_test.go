package policy

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
)

var sameTables = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(),
	cmp.Transformer("Peers", func(p *Peers) map[netip.Addr]Identity { return maps.Collect(p.All()) }),
}

// evaluated answers a question with package evaluate, which visits every policy and every rule. subject replaces the
// pod of that name; nil keeps it. by is the first policy, by name, that allows it.
func evaluated(s *cluster.Snapshot, q query, subject *cluster.Pod) (allowed bool, by cluster.Key, err error) {
	if subject != nil {
		with := *s
		pods := slices.DeleteFunc(slices.Clone(s.Pods.Slice()), func(p *cluster.Pod) bool { return p.Key() == q.pod })
		at, _ := slices.BinarySearchFunc(pods, q.pod, func(p *cluster.Pod, key cluster.Key) int { return p.Key().Compare(key) })
		with.Pods = cluster.ListOf(slices.Insert(pods, at, subject)...)
		s = &with
	}
	pod, peer := evaluate.Endpoint{Pod: q.pod, Address: q.subject}, evaluate.Endpoint{Address: q.peer}
	traffic := evaluate.Traffic{Source: peer, Destination: pod, Protocol: cluster.Protocol(q.protocol), Port: q.port}
	if q.direction == Egress {
		traffic.Source, traffic.Destination = pod, peer
	}
	v := evaluate.Evaluate(s, traffic)
	j := v.Ingress
	if q.direction == Egress {
		j = v.Egress
	}
	for i, r := range j.Rules {
		if i == 0 || r.Policy.Compare(by) < 0 {
			by = r.Policy
		}
	}
	return j.Allowed, by, v.Err
}

// agree compares what tables allow with package evaluate.
func agree(t *testing.T, tables *Tables, s *cluster.Snapshot, queries []query) {
	t.Helper()
	for _, q := range queries {
		want, by, err := evaluated(s, q, nil)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		got, number := tables.Verdict(tables.Pods[q.subject], q.direction, q.peer, q.protocol, q.port)
		if got != want || tables.Names[number] != by {
			t.Fatalf("%s: tables say %t by %q, evaluated it is %t by %q", q, got, tables.Names[number], want, by)
		}
	}
}

// Whatever changes in whatever order, tables agree with the policies, equal those of a new Compiler, and numbers keep
// their meaning.
func TestRandomChanges(t *testing.T) {
	for _, seed := range testenv.Seeds(t, 20) {
		w := newRandomCluster(seed)
		c := NewCompiler("n1")
		before := &Tables{}
		for step := range 40 {
			for range 1 + w.IntN(3) {
				w.change()
			}
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			tables, _ := c.Compile(snapshot, local)
			agree(t, tables, snapshot, w.queries(local, 60))
			disjoint(t, tables)
			fresh, _ := NewCompiler("n1").Compile(snapshot, local)
			if diff := cmp.Diff(fresh, tables, sameTables); diff != "" {
				t.Fatalf("seed %d, step %d: (-new compiler +old one):\n%s", seed, step, diff)
			}
			kept(t, before.Policies, tables.Policies)
			kept(t, before.Ports, tables.Ports)
			kept(t, before.Names, tables.Names)
			before = tables
		}
	}
}

// kept fails if an entry of both has changed its value.
func kept[K comparable, V comparable](t *testing.T, before, now map[K]V) {
	t.Helper()
	for k, v := range before {
		if w, both := now[k]; both && v != w {
			t.Fatalf("%+v was %v and is %v", k, v, w)
		}
	}
}

// The order of unordered inputs does not change the tables.
func TestOrderDoesNotMatter(t *testing.T) {
	for _, seed := range testenv.Seeds(t, 20) {
		w := newRandomCluster(seed)
		snapshot := w.snapshot()
		local := localTo("n1", snapshot)
		want, _ := NewCompiler("n1").Compile(snapshot, local)
		w.Shuffle(len(local.Pods), func(i, j int) { local.Pods[i], local.Pods[j] = local.Pods[j], local.Pods[i] })
		other := *snapshot
		other.NetworkPolicies = nil
		for _, p := range snapshot.NetworkPolicies {
			q := *p
			q.Pods = shuffled(w.Rand, p.Pods)
			q.Ingress, q.Egress = shuffledRules(w.Rand, p.Ingress), shuffledRules(w.Rand, p.Egress)
			other.NetworkPolicies = append(other.NetworkPolicies, &q)
		}
		got, _ := NewCompiler("n1").Compile(&other, local)
		agree(t, got, snapshot, w.queries(local, 200))
		if diff := cmp.Diff(want, got, sameTables); diff != "" {
			t.Fatalf("seed %d: (-ordered +shuffled):\n%s", seed, diff)
		}
	}
}

func shuffled(random *rand.Rand, s cluster.Selector) cluster.Selector {
	all := slices.Clone(s.Requirements)
	for i := range all {
		all[i].Values = slices.Clone(all[i].Values)
		random.Shuffle(len(all[i].Values), func(a, b int) { all[i].Values[a], all[i].Values[b] = all[i].Values[b], all[i].Values[a] })
	}
	random.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return cluster.Selector{Requirements: all}
}

func shuffledRules(random *rand.Rand, rules []cluster.PolicyRule) (all []cluster.PolicyRule) {
	for _, r := range rules { // the order of rules is part of the names of block lists
		peers, ports := slices.Clone(r.Peers), slices.Clone(r.Ports)
		for i := range peers {
			if peers[i].Pods != nil {
				s := shuffled(random, *peers[i].Pods)
				peers[i].Pods = &s
			}
		}
		random.Shuffle(len(peers), func(a, b int) { peers[a], peers[b] = peers[b], peers[a] })
		random.Shuffle(len(ports), func(a, b int) { ports[a], ports[b] = ports[b], ports[a] })
		all = append(all, cluster.PolicyRule{Peers: peers, Ports: ports})
	}
	return all
}

// Numbers that collide are distinct, and stay the same while other objects change.
func TestCollisions(t *testing.T) {
	weak := func(c content, nth uint32) uint32 { return hashed(c, nth) & 0x800001ff }
	for _, seed := range testenv.Seeds(t, 30) {
		w := newRandomCluster(seed)
		c := newCompiler("n1", weak)
		before := &Tables{}
		for range 30 {
			w.change()
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			tables, _ := c.Compile(snapshot, local)
			agree(t, tables, snapshot, w.queries(local, 40))
			kept(t, before.Names, tables.Names)
			kept(t, before.Policies, tables.Policies)
			before = tables
			one, _ := newCompiler("n1", weak).Compile(snapshot, local)
			other, _ := newCompiler("n1", weak).Compile(snapshot, local)
			if diff := cmp.Diff(one, other, sameTables); diff != "" {
				t.Fatalf("seed %d: one snapshot gives (-one +other):\n%s", seed, diff)
			}
		}
	}
}

// Tables are written in the order of the comment of Tables. At no moment is anything allowed except what is allowed
// before, after, or if policies, the pod itself and the other pods had changed one after the other.
func TestNothingOpensOnTheWay(t *testing.T) {
	for _, seed := range testenv.Seeds(t, 20) {
		w := newRandomCluster(seed)
		c := NewCompiler("n1")
		before := w.snapshot()
		old, _ := c.Compile(before, localTo("n1", before))
		for range 30 {
			for range 1 + w.IntN(3) {
				w.change()
			}
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			now, _ := c.Compile(snapshot, local)
			queries := w.queries(local, 40)
			apply(old, now, func(what string, moment *Tables) {
				for _, q := range queries {
					open, _ := moment.Verdict(moment.Pods[q.subject], q.direction, q.peer, q.protocol, q.port)
					if open && !openBetween(before, snapshot, q) {
						t.Fatalf("seed %d: %s: %s is open for a moment", seed, what, q)
					}
				}
			})
			before, old = snapshot, now
		}
	}
}

// The exception of a block is denied at every moment, while the block is added and removed with it.
func TestBlocksAreWrittenFromTheInside(t *testing.T) {
	const small = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}`
	const large = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 203.0.0.0/16, except: [203.0.113.0/24]}}]}]}`
	for _, way := range [][2]string{{small, large}, {large, small}} {
		var tables [2]*Tables
		c := NewCompiler("n1")
		for i, policies := range way {
			of := testCase{policies: policies}
			s := of.snapshot(t)
			tables[i], _ = c.Compile(s, localTo("n1", s))
		}
		apply(tables[0], tables[1], func(what string, moment *Tables) {
			if open, _ := moment.Verdict(moment.Pods[addr("10.1.1.2")], Ingress, addr("203.0.113.1"), 6, 80); open {
				t.Errorf("%s: the exception is open", what)
			}
		})
	}
}

// openBetween reports whether something is allowed in any order of the changes between two snapshots.
func openBetween(before, after *cluster.Snapshot, q query) bool {
	for _, policies := range []*cluster.Snapshot{before, after} {
		for _, peers := range []*cluster.Snapshot{before, after} {
			for _, subject := range []*cluster.Snapshot{before, after} {
				s := *peers
				s.NetworkPolicies = policies.NetworkPolicies
				pod, found := subject.Pods.Find(q.pod)
				if !found || !slices.Contains(pod.Addresses, q.subject) || pod.Node != "n1" || pod.HostNetwork || pod.Ended {
					return true // it did not exist
				}
				open, _, err := evaluated(&s, q, pod)
				if err != nil {
					panic(err) // the pod has the address
				}
				if open {
					return true
				}
			}
		}
	}
	return false
}

// apply changes one entry after the other, and shows the state after each.
func apply(old, now *Tables, show func(string, *Tables)) {
	m := &Tables{
		Pods: copied(old.Pods), Identities: identified(old), Blocks: copied(old.Blocks),
		Policies: copied(old.Policies), Ports: copied(old.Ports),
	}
	maps.Copy(m.Ports, now.Ports)
	maps.Copy(m.Policies, now.Policies)
	show("policies", m)
	for a, i := range identified(now) {
		m.Identities[a] = i
		show("identity "+a.String(), m)
	}
	longest := func(a, b netip.Prefix) int { return b.Bits() - a.Bits() }
	for _, p := range slices.SortedFunc(maps.Keys(now.Blocks), longest) {
		m.Blocks[p] = now.Blocks[p]
		show("block "+p.String(), m)
	}
	for a, sets := range now.Pods {
		m.Pods[a] = sets
	}
	for a := range m.Pods {
		if _, kept := now.Pods[a]; !kept {
			delete(m.Pods, a)
		}
	}
	show("pods", m)
	shortest := slices.SortedFunc(maps.Keys(m.Blocks), func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	for _, p := range shortest {
		if _, kept := now.Blocks[p]; !kept {
			delete(m.Blocks, p)
			show("no block "+p.String(), m)
		}
	}
	for a := range m.Identities {
		if _, kept := identified(now)[a]; !kept {
			delete(m.Identities, a)
			show("no identity "+a.String(), m)
		}
	}
}

// identified are the pods and this node, as one table.
func identified(t *Tables) map[netip.Addr]Identity {
	all := copied(t.Identities)
	maps.Insert(all, t.Peers.All())
	return all
}

func copied[K comparable, V any](from map[K]V) map[K]V {
	to := map[K]V{}
	maps.Copy(to, from)
	return to
}

// FuzzCompile asks random questions about random clusters.
func FuzzCompile(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		w := newRandomCluster(seed)
		c := NewCompiler("n1")
		for range steps % 8 {
			w.change()
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			tables, _ := c.Compile(snapshot, local)
			agree(t, tables, snapshot, w.queries(local, 50))
		}
	})
}
