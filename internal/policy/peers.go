package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// peers are the pods of the cluster as those whom rules are about. They are kept from pass to pass, and a pass looks at what has changed: at the
// addresses of pods that did, at those of pods whose sort is told apart in another way now, and at those of this node.
type peers struct {
	// pods and namespaces are those of the last pass.
	pods       cluster.List[*cluster.Pod]
	namespaces []*cluster.Namespace
	// locals are the names of the pods here, localAt the addresses that they have, each with its index in world.pods; own are this node's.
	locals  map[cluster.Key]bool
	localAt map[netip.Addr]int
	own     map[netip.Addr]bool
	// localPods are the pods here, and localRules what they were told apart by.
	localPods  []localPod
	localRules localRules

	sorts map[string]map[sortOf]*sort // by namespace
	at    map[addressKey]peerAt
	// contested are all that claim an address, of those that several do, sorted by name.
	contested map[netip.Addr][]*cluster.Pod
	// odd are the addresses of which something is to be complained.
	odd map[netip.Addr]bool
	// counts are how many addresses an identity has.
	counts map[*numbered[*identity]]int
	table  *Peers

	// asked are the selectors and named are the ports that rules ask for now and did not in the last pass, or the other way round; moved are the
	// prefixes whose addresses are in other blocks since.
	asked []*condition
	named map[namedPort]bool
	moved []netip.Prefix
	// touched are the addresses that this pass looks at, and changes those that have another identity than before.
	touched map[netip.Addr]bool
	changes map[netip.Addr]*numbered[*identity]
}

// addressKey is an address as a key: two thirds of a netip.Addr, and no pointer that each collection of garbage would follow.
type addressKey [16]byte

func (k addressKey) address() netip.Addr { return netip.AddrFrom16(k).Unmap() }

// peerAt is what an address has. pod is the first of those of other nodes that claim it.
type peerAt struct {
	pod      *cluster.Pod
	identity *numbered[*identity]
}

// sortOf is all that rules can ask of a pod but for its address. Pods of a Deployment are of one sort.
type sortOf struct {
	namespace string
	labels    cluster.Labels
	ports     string
}

// sort is pods of one sort, as rules in force see them.
type sort struct {
	named []cluster.ContainerPort
	// met are the selectors that select them, sorted by content, and ports those that are asked for by name.
	met   []*condition
	ports []containerPort
	// usual is their identity at addresses that are in no block; nil if nobody has asked for it.
	usual *numbered[*identity]
	pods  int
}

// keptTouched is how many addresses a pass may look at before its lists of them are given up with it: those of the first pass are 30 MB in a large
// cluster, and would wait for the next one.
const keptTouched = 1024

// rest gives up what only this pass needs, if that is much.
func (p *peers) rest() {
	if len(p.touched) > keptTouched {
		p.touched, p.changes = nil, nil
	}
}

// numbers gives what changes as Tables have it, now that identities have their numbers.
func (p *peers) numbers() map[netip.Addr]Identity {
	numbers := make(map[netip.Addr]Identity, len(p.changes))
	for addr, of := range p.changes {
		if numbers[addr] = IdentityUnknown; of != nil {
			numbers[addr] = numberOf(of)
		}
	}
	return numbers
}

// ask notes which selectors rules ask for now and did not before, and the other way round. Both lists are sorted by content.
func (p *peers) ask(before, now []*condition) {
	for _, lists := range [][2][]*condition{{before, now}, {now, before}} {
		for _, of := range lists[0] {
			if _, both := slices.BinarySearchFunc(lists[1], of, compareConditions); !both {
				p.asked = append(p.asked, of)
			}
		}
	}
}

// askPort notes that rules ask for a port by name and did not before, or the other way round.
func (p *peers) askPort(name namedPort) {
	if p.named == nil {
		p.named = map[namedPort]bool{}
	}
	p.named[name] = true
}

// forgetPeers begins anew.
func (c *Compiler) forgetPeers() { c.peers = peers{} }

// takePeers finds the identities of all pods. Who is told by this node to have an address has it; of other pods that claim the same
// one nothing is known: whatever one of them is allowed would be the other's too.
func (c *Compiler) takePeers(w *world) (problems []Problem) {
	p := &c.peers
	if p.at == nil {
		p.sorts, p.at, p.contested = map[string]map[sortOf]*sort{}, map[addressKey]peerAt{}, map[netip.Addr][]*cluster.Pod{}
		p.odd, p.counts = map[netip.Addr]bool{}, map[*numbered[*identity]]int{}
	}
	p.touched, p.changes = map[netip.Addr]bool{}, map[netip.Addr]*numbered[*identity]{}
	c.takeLocals(w)
	cluster.Differences(p.pods, w.snapshot.Pods, func(before, after *cluster.Pod) {
		c.unclaim(before)
		c.claim(after, w)
	})
	p.pods = w.snapshot.Pods
	c.takeSorts(w)
	p.namespaces, p.asked, p.named, p.moved = w.snapshot.Namespaces, nil, nil, nil
	for addr := range p.touched {
		c.resolve(addr, w)
	}
	for i := range p.counts {
		c.use(i)
	}
	return append(w.complaints, c.complain(w)...)
}

// takeLocals takes the addresses of this node and of the pods here, and what follows for the Pods of their names.
func (c *Compiler) takeLocals(w *world) {
	p := &c.peers
	locals, localAt := make(map[cluster.Key]bool, len(w.pods)), make(map[netip.Addr]int, len(w.pods))
	for i := range w.pods {
		locals[w.pods[i].Pod] = true
		w.takeAddresses(i, localAt)
	}
	var differ []*cluster.Pod
	for _, names := range [][2]map[cluster.Key]bool{{p.locals, locals}, {locals, p.locals}} {
		for name := range names[0] {
			if names[1][name] {
				continue
			}
			if pod, found := p.pods.Find(name); found {
				differ = append(differ, pod)
			}
		}
	}
	for _, pod := range differ {
		c.unclaim(pod)
	}
	rules := localRules{c.rules.generation, c.rules.choice, c.rules.spaces}
	before := localsAt{p.localAt, p.localPods}
	now := localsAt{localAt, w.pods}
	for _, all := range [][2]localsAt{{before, now}, {now, before}} {
		for addr := range all[0].at {
			if rules != p.localRules || !all[0].same(all[1], addr) {
				p.touched[addr] = true
			}
		}
	}
	p.localPods, p.localRules = w.pods, rules
	for _, all := range [][2]map[netip.Addr]bool{{p.own, w.own}, {w.own, p.own}} {
		for addr := range all[0] {
			if !all[1][addr] {
				p.touched[addr] = true
			}
		}
	}
	p.locals, p.localAt, p.own = locals, localAt, w.own
	for _, pod := range differ {
		c.claim(pod, w)
	}
}

// localRules are what identities of the pods here depend on beside the pods.
type localRules struct {
	generation uint64
	choice     *choice
	spaces     [2]*space
}

// localsAt are pods here by their addresses.
type localsAt struct {
	at   map[netip.Addr]int
	pods []localPod
}

// same tells whether an address is that of a pod in both, with the same Pod and labels.
func (l localsAt) same(other localsAt, addr netip.Addr) bool {
	of, isOf := l.at[addr]
	otherOf, isOtherOf := other.at[addr]
	return isOf && isOtherOf && l.pods[of].object == other.pods[otherOf].object && l.pods[of].labels == other.pods[otherOf].labels
}

// findPod finds a Pod among sorted ones.
func findPod(pods []*cluster.Pod, name cluster.Key) (int, bool) {
	return slices.BinarySearchFunc(pods, name, func(p *cluster.Pod, key cluster.Key) int { return p.Key().Compare(key) })
}

// claims tells whether the addresses of a Pod are its own, and not what this node knows better. One that the cluster has on
// another node has come after the one of its name that is still here.
func (c *Compiler) claims(pod *cluster.Pod) bool {
	return pod != nil && !pod.HostNetwork && !pod.Ended && len(pod.Addresses) > 0 && (!c.peers.locals[pod.Key()] || !mayBeOf(c.node, pod))
}

func (c *Compiler) claim(pod *cluster.Pod, w *world) {
	if !c.claims(pod) {
		return
	}
	p := &c.peers
	c.sort(pod, w).pods++
	for _, addr := range pod.Addresses {
		p.touched[addr] = true
		at := p.at[addr.As16()]
		if at.pod == nil {
			at.pod = pod
			p.at[addr.As16()] = at
			continue
		}
		all := p.contested[addr]
		if all == nil {
			all = []*cluster.Pod{at.pod}
		}
		n, _ := findPod(all, pod.Key())
		all = slices.Insert(all, n, pod)
		p.contested[addr], at.pod = all, all[0]
		p.at[addr.As16()] = at
	}
}

func (c *Compiler) unclaim(pod *cluster.Pod) {
	if !c.claims(pod) {
		return
	}
	p := &c.peers
	if of := p.sortOf(pod); of != nil {
		if of.pods--; of.pods == 0 {
			p.dropSort(pod)
		}
	}
	for _, addr := range pod.Addresses {
		p.touched[addr] = true
		at := p.at[addr.As16()]
		at.pod = nil
		if all := p.contested[addr]; all != nil {
			all = slices.DeleteFunc(slices.Clone(all), func(o *cluster.Pod) bool { return o.Key() == pod.Key() })
			if p.contested[addr] = all; len(all) < 2 {
				delete(p.contested, addr)
			}
			at.pod = all[0]
		}
		p.at[addr.As16()] = at
	}
}

func sortOfPod(pod *cluster.Pod) sortOf {
	return sortOf{pod.Namespace, pod.Labels, namedKey(pod.Ports)}
}

// sort gives that of a pod.
func (c *Compiler) sort(pod *cluster.Pod, w *world) *sort {
	key := sortOfPod(pod)
	known := c.peers.sortOf(pod)
	if known == nil {
		known = &sort{named: pod.Ports}
		c.see(known, key, w)
		of := c.peers.sorts[pod.Namespace]
		if of == nil {
			of = map[sortOf]*sort{}
			c.peers.sorts[pod.Namespace] = of
		}
		of[key] = known
	}
	return known
}

// sortOf gives the sort of a pod that somebody has claimed addresses for.
func (p *peers) sortOf(pod *cluster.Pod) *sort { return p.sorts[pod.Namespace][sortOfPod(pod)] }

func (p *peers) countSorts() (count int) {
	for _, of := range p.sorts {
		count += len(of)
	}
	return count
}

func (p *peers) dropSort(pod *cluster.Pod) {
	of := p.sorts[pod.Namespace]
	if delete(of, sortOfPod(pod)); len(of) == 0 {
		delete(p.sorts, pod.Namespace)
	}
}

// see finds how rules in force see pods of a sort, and tells whether that is another way than before.
func (c *Compiler) see(s *sort, key sortOf, w *world) (isNew bool) {
	met := c.rules.choice.selecting(podLabels{namespace: key.namespace, ofNamespace: w.labelsOfNamespace(key.namespace), ofPod: key.labels})
	ports := portsOf(s.named, c.rules.asked)
	if slices.Equal(met, s.met) && slices.Equal(ports, s.ports) {
		return false
	}
	s.met, s.ports, s.usual = met, ports, nil
	return true
}

// touchWithin has the addresses in some prefixes looked at. All are gone through only for prefixes of more than one.
func (p *peers) touchWithin(prefixes []netip.Prefix) {
	var wide []netip.Prefix
	for _, prefix := range prefixes {
		if !prefix.IsSingleIP() {
			wide = append(wide, prefix)
		} else if _, known := p.at[prefix.Addr().As16()]; known {
			p.touched[prefix.Addr()] = true
		}
	}
	if len(wide) == 0 {
		return
	}
	for key := range p.at {
		addr := key.address()
		if slices.ContainsFunc(wide, func(prefix netip.Prefix) bool { return prefix.Contains(addr) }) {
			p.touched[addr] = true
		}
	}
}

// takeSorts looks at the sorts of pods that may be seen in another way, and has the addresses of those that are looked at.
func (c *Compiler) takeSorts(w *world) {
	p := &c.peers
	p.touchWithin(p.moved)
	namespaces := map[string]bool{}
	cluster.Differences(cluster.ListOf(p.namespaces...), cluster.ListOf(w.snapshot.Namespaces...), func(before, after *cluster.Namespace) {
		for _, n := range []*cluster.Namespace{before, after} {
			if n != nil {
				namespaces[n.Name] = true
			}
		}
	})
	changed := map[string]map[*sort]bool{}
	if len(namespaces)+len(p.asked)+len(p.named) == 0 {
		return
	}
	asked := newChoice(p.asked)
	for namespace, sorts := range p.sorts {
		all := namespaces[namespace] || asked.concerns(namespace, func() cluster.Labels { return w.labelsOfNamespace(namespace) })
		if !all && len(p.named) == 0 {
			continue
		}
		for key, s := range sorts {
			if !all && !slices.ContainsFunc(s.named, func(port cluster.ContainerPort) bool { return p.named[namedPort{port.Name, port.Protocol}] }) {
				continue
			}
			if c.see(s, key, w) {
				if changed[namespace] == nil {
					changed[namespace] = map[*sort]bool{}
				}
				changed[namespace][s] = true
			}
		}
	}
	for namespace, sorts := range changed {
		for pod := range p.pods.From(cluster.Key{Namespace: namespace}) {
			if pod.Namespace != namespace {
				break
			}
			if sorts[p.sortOf(pod)] {
				for _, addr := range pod.Addresses {
					p.touched[addr] = true
				}
			}
		}
	}
}

// resolve finds the identity of an address.
func (c *Compiler) resolve(addr netip.Addr, w *world) {
	p := &c.peers
	at := p.at[addr.As16()]
	before := at.identity
	local, isLocal := p.localAt[addr]
	if at.identity = nil; !w.own[addr] {
		switch {
		case isLocal:
			pod := &w.pods[local]
			var named []cluster.ContainerPort
			if pod.object != nil {
				named = pod.object.Ports
			}
			at.identity = c.identityAt(addr, c.rules.choice.classOf(pod.labels).selectors, portsOf(named, c.rules.asked))
		case len(p.contested[addr]) > 0:
			at.identity = c.identityAt(addr, nil, nil)
		case at.pod != nil:
			at.identity = c.identityOfSort(addr, p.sortOf(at.pod))
		}
	}
	if at.pod != nil && (w.own[addr] || isLocal || len(p.contested[addr]) > 0) {
		p.odd[addr] = true
	} else {
		delete(p.odd, addr)
	}
	if at == (peerAt{}) {
		delete(p.at, addr.As16())
	} else {
		p.at[addr.As16()] = at
	}
	if at.identity == before {
		return
	}
	p.changes[addr] = at.identity
	if at.identity != nil {
		p.counts[at.identity]++
	}
	if before != nil {
		if p.counts[before]--; p.counts[before] == 0 {
			delete(p.counts, before)
		}
	}
}

// identityOfSort gives the identity of pods of a sort at an address.
func (c *Compiler) identityOfSort(addr netip.Addr, s *sort) *numbered[*identity] {
	if c.rules.spaces[familyOf(addr)].classOf(addr) != nowhere {
		return c.identityAt(addr, s.met, s.ports)
	}
	if s.usual == nil {
		s.usual = c.identity(true, s.met, s.ports)
	}
	s.usual = c.use(s.usual)
	return s.usual
}

// identityAt gives the identity of a pod at an address that may be in blocks.
func (c *Compiler) identityAt(addr netip.Addr, selectors []*condition, ports []containerPort) *numbered[*identity] {
	met := slices.Concat(selectors, c.rules.spaces[familyOf(addr)].classOf(addr).met)
	slices.SortFunc(met, compareConditions)
	return c.identity(true, met, ports)
}

// namedKey gives all named ports of a pod, in their order.
func namedKey(ports []cluster.ContainerPort) string {
	var key []byte
	for _, p := range ports {
		key = append(key, p.Name...)
		key = append(key, 0, byte(p.Protocol))
		key = binary.BigEndian.AppendUint16(key, p.Number)
	}
	return string(key)
}
