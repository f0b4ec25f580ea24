package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// peers are the pods of the cluster as peers of rules. They are kept from pass to pass. A pass looks only at the addresses of
// changed pods, of pods whose group matches other rules now, and of this node.
type peers struct {
	// pods and namespaces are those of the last pass.
	pods       cluster.List[*cluster.Pod]
	namespaces []*cluster.Namespace
	// locals are the names of local pods, localAt their addresses with the index in passInput.pods; own are this node's.
	locals  map[cluster.Key]bool
	localAt map[netip.Addr]int
	own     map[netip.Addr]bool
	// localPods are the local pods, localRules what their identities depended on.
	localPods  []localPod
	localRules localRules

	groups map[string]map[groupOf]*podGroup // by namespace
	at     map[addressKey]peerAt
	// contested are all owners of an address with several, sorted by name.
	contested map[netip.Addr][]*cluster.Pod
	// counts are how many addresses have an identity.
	counts map[*numbered[*identity]]int
	table  *Peers

	// requested are the selectors, and named the ports, that rules match now but did not in the last pass, or vice versa.
	// movedPrefixes are the prefixes whose addresses are in other blocks since.
	requested     []*condition
	named         map[namedPort]bool
	movedPrefixes []netip.Prefix
	// dirty are the addresses that this pass looks at, changes those with another identity than before.
	dirty   map[netip.Addr]bool
	changes map[netip.Addr]*numbered[*identity]
}

// addressKey is an address in two thirds of the size of a netip.Addr, without a pointer for the garbage collector to follow.
type addressKey [16]byte

func (k addressKey) address() netip.Addr { return netip.AddrFrom16(k).Unmap() }

// peerAt is the state of an address. pod is its first owner on other nodes.
type peerAt struct {
	pod      *cluster.Pod
	identity *numbered[*identity]
}

// groupOf is everything that rules match of a pod except its address. Pods of a Deployment are in one group.
type groupOf struct {
	namespace string
	labels    cluster.Labels
	ports     string
}

// podGroup is pods that all rules treat alike, except for their addresses.
type podGroup struct {
	named []cluster.ContainerPort
	// met are the selectors that select them, sorted by content; ports the named ports that rules request.
	met   []*condition
	ports []containerPort
	// plain is their identity at addresses outside all blocks; nil until it is needed.
	plain *numbered[*identity]
	pods  int
}

// keptDirty is how many dirty addresses a pass may have before it releases the maps: those of the first pass need 30 MB in a
// large cluster.
const keptDirty = 1024

// releaseScratch releases the memory that only this pass needs if it is large.
func (p *peers) releaseScratch() {
	if len(p.dirty) > keptDirty {
		p.dirty, p.changes = nil, nil
	}
}

// numbers returns the changes for Tables; identities have their numbers.
func (p *peers) numbers() map[netip.Addr]Identity {
	numbers := make(map[netip.Addr]Identity, len(p.changes))
	for addr, of := range p.changes {
		if numbers[addr] = IdentityUnknown; of != nil {
			numbers[addr] = numberOf(of)
		}
	}
	return numbers
}

// ask records the selectors that are in only one of the lists, which are sorted by content.
func (p *peers) ask(before, now []*condition) {
	for _, lists := range [][2][]*condition{{before, now}, {now, before}} {
		for _, of := range lists[0] {
			if _, both := slices.BinarySearchFunc(lists[1], of, compareConditions); !both {
				p.requested = append(p.requested, of)
			}
		}
	}
}

// requestPort records that rules started or stopped to request a port by name.
func (p *peers) requestPort(name namedPort) {
	if p.named == nil {
		p.named = map[namedPort]bool{}
	}
	p.named[name] = true
}

// resetPeers drops everything.
func (c *Compiler) resetPeers() { c.peers = peers{} }

// collectPeers finds the identities of all pods. A local pod keeps its address. If several other pods have the same address it
// gets the unknown pod identity: what one is allowed would be allowed to the other too.
func (c *Compiler) collectPeers(w *passInput) (problems []Problem) {
	p := &c.peers
	if p.at == nil {
		p.groups, p.at, p.contested = map[string]map[groupOf]*podGroup{}, map[addressKey]peerAt{}, map[netip.Addr][]*cluster.Pod{}
		p.counts = map[*numbered[*identity]]int{}
	}
	p.dirty, p.changes = map[netip.Addr]bool{}, map[netip.Addr]*numbered[*identity]{}
	c.collectLocals(w)
	cluster.Differences(p.pods, w.snapshot.Pods, func(before, after *cluster.Pod) {
		c.removePod(before)
		c.addPod(after, w)
	})
	p.pods = w.snapshot.Pods
	c.updateGroups(w)
	p.namespaces, p.requested, p.named, p.movedPrefixes = w.snapshot.Namespaces, nil, nil, nil
	for addr := range p.dirty {
		c.resolve(addr, w)
	}
	for i := range p.counts {
		c.use(i)
	}
	return append(w.problems, c.addProblem(w)...)
}

// collectLocals updates the addresses of this node and of the local pods, and the Pods with their names.
func (c *Compiler) collectLocals(w *passInput) {
	p := &c.peers
	locals, localAt := make(map[cluster.Key]bool, len(w.pods)), make(map[netip.Addr]int, len(w.pods))
	for i := range w.pods {
		locals[w.pods[i].Pod] = true
		w.addAddresses(i, localAt)
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
		c.removePod(pod)
	}
	rules := localRules{c.rules.generation, c.rules.selectorIndex, c.rules.spaces}
	before := localsAt{p.localAt, p.localPods}
	now := localsAt{localAt, w.pods}
	for _, all := range [][2]localsAt{{before, now}, {now, before}} {
		for addr := range all[0].at {
			if rules != p.localRules || !all[0].same(all[1], addr) {
				p.dirty[addr] = true
			}
		}
	}
	p.localPods, p.localRules = w.pods, rules
	for _, all := range [][2]map[netip.Addr]bool{{p.own, w.own}, {w.own, p.own}} {
		for addr := range all[0] {
			if !all[1][addr] {
				p.dirty[addr] = true
			}
		}
	}
	p.locals, p.localAt, p.own = locals, localAt, w.own
	for _, pod := range differ {
		c.addPod(pod, w)
	}
}

// localRules are what identities of local pods depend on besides the pods.
type localRules struct {
	generation    uint64
	selectorIndex *selectorIndex
	spaces        [2]*partition
}

// localsAt are local pods by their addresses.
type localsAt struct {
	at   map[netip.Addr]int
	pods []localPod
}

// same reports whether an address belongs in both to a pod with the same Pod and labels.
func (l localsAt) same(other localsAt, addr netip.Addr) bool {
	of, isOf := l.at[addr]
	otherOf, isOtherOf := other.at[addr]
	return isOf && isOtherOf && l.pods[of].object == other.pods[otherOf].object && l.pods[of].labels == other.pods[otherOf].labels
}

// findPod finds a Pod in a sorted list.
func findPod(pods []*cluster.Pod, name cluster.Key) (int, bool) {
	return slices.BinarySearchFunc(pods, name, func(p *cluster.Pod, key cluster.Key) int { return p.Key().Compare(key) })
}

// ownsAddresses reports whether the addresses of a Pod are its own and not better known to this node. A Pod on another node is
// newer than the local pod of its name.
func (c *Compiler) ownsAddresses(pod *cluster.Pod) bool {
	return pod != nil && !pod.HostNetwork && !pod.Ended && len(pod.Addresses) > 0 && (!c.peers.locals[pod.Key()] || !mayRunOn(c.node, pod))
}

func (c *Compiler) addPod(pod *cluster.Pod, w *passInput) {
	if !c.ownsAddresses(pod) {
		return
	}
	p := &c.peers
	c.podGroup(pod, w).pods++
	for _, addr := range pod.Addresses {
		p.dirty[addr] = true
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

func (c *Compiler) removePod(pod *cluster.Pod) {
	if !c.ownsAddresses(pod) {
		return
	}
	p := &c.peers
	if of := p.groupOf(pod); of != nil {
		if of.pods--; of.pods == 0 {
			p.dropGroup(pod)
		}
	}
	for _, addr := range pod.Addresses {
		p.dirty[addr] = true
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

func groupKeyOf(pod *cluster.Pod) groupOf {
	return groupOf{pod.Namespace, pod.Labels, namedKey(pod.Ports)}
}

// podGroup returns that of a pod, and makes it if necessary.
func (c *Compiler) podGroup(pod *cluster.Pod, w *passInput) *podGroup {
	key := groupKeyOf(pod)
	known := c.peers.groupOf(pod)
	if known == nil {
		known = &podGroup{named: pod.Ports}
		c.see(known, key, w)
		of := c.peers.groups[pod.Namespace]
		if of == nil {
			of = map[groupOf]*podGroup{}
			c.peers.groups[pod.Namespace] = of
		}
		of[key] = known
	}
	return known
}

// groupOf returns the group of a pod that was added.
func (p *peers) groupOf(pod *cluster.Pod) *podGroup { return p.groups[pod.Namespace][groupKeyOf(pod)] }

func (p *peers) countGroups() (count int) {
	for _, of := range p.groups {
		count += len(of)
	}
	return count
}

func (p *peers) dropGroup(pod *cluster.Pod) {
	of := p.groups[pod.Namespace]
	if delete(of, groupKeyOf(pod)); len(of) == 0 {
		delete(p.groups, pod.Namespace)
	}
}

// see updates what a group matches, and reports whether that changed.
func (c *Compiler) see(s *podGroup, key groupOf, w *passInput) (isNew bool) {
	met := c.rules.selectorIndex.selecting(podLabels{namespace: key.namespace, ofNamespace: w.labelsOfNamespace(key.namespace), ofPod: key.labels})
	ports := portsOf(s.named, c.rules.requested)
	if slices.Equal(met, s.met) && slices.Equal(ports, s.ports) {
		return false
	}
	s.met, s.ports, s.plain = met, ports, nil
	return true
}

// markWithin marks the addresses in some prefixes as dirty. It iterates over all addresses only for prefixes of more than one.
func (p *peers) markWithin(prefixes []netip.Prefix) {
	var wide []netip.Prefix
	for _, prefix := range prefixes {
		if !prefix.IsSingleIP() {
			wide = append(wide, prefix)
		} else if _, known := p.at[prefix.Addr().As16()]; known {
			p.dirty[prefix.Addr()] = true
		}
	}
	if len(wide) == 0 {
		return
	}
	for key := range p.at {
		addr := key.address()
		if slices.ContainsFunc(wide, func(prefix netip.Prefix) bool { return prefix.Contains(addr) }) {
			p.dirty[addr] = true
		}
	}
}

// updateGroups updates the groups that may match other rules now, and marks the addresses of groups that do as dirty.
func (c *Compiler) updateGroups(w *passInput) {
	p := &c.peers
	p.markWithin(p.movedPrefixes)
	namespaces := map[string]bool{}
	cluster.Differences(cluster.ListOf(p.namespaces...), cluster.ListOf(w.snapshot.Namespaces...), func(before, after *cluster.Namespace) {
		for _, n := range []*cluster.Namespace{before, after} {
			if n != nil {
				namespaces[n.Name] = true
			}
		}
	})
	changed := map[string]map[*podGroup]bool{}
	if len(namespaces)+len(p.requested)+len(p.named) == 0 {
		return
	}
	requested := newSelectorIndex(p.requested)
	for namespace, groups := range p.groups {
		all := namespaces[namespace] || requested.selectsNamespace(namespace, func() cluster.Labels { return w.labelsOfNamespace(namespace) })
		if !all && len(p.named) == 0 {
			continue
		}
		for key, s := range groups {
			if !all && !slices.ContainsFunc(s.named, func(port cluster.ContainerPort) bool { return p.named[namedPort{port.Name, port.Protocol}] }) {
				continue
			}
			if c.see(s, key, w) {
				if changed[namespace] == nil {
					changed[namespace] = map[*podGroup]bool{}
				}
				changed[namespace][s] = true
			}
		}
	}
	for namespace, groups := range changed {
		for pod := range p.pods.From(cluster.Key{Namespace: namespace}) {
			if pod.Namespace != namespace {
				break
			}
			if groups[p.groupOf(pod)] {
				for _, addr := range pod.Addresses {
					p.dirty[addr] = true
				}
			}
		}
	}
}

// resolve finds the identity of an address.
func (c *Compiler) resolve(addr netip.Addr, w *passInput) {
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
			at.identity = c.identityAt(addr, c.rules.selectorIndex.selecting(pod.labels), portsOf(named, c.rules.requested))
		case len(p.contested[addr]) > 0:
			at.identity = c.identityAt(addr, nil, nil)
		case at.pod != nil:
			at.identity = c.identityOfGroup(addr, p.groupOf(at.pod))
		}
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

// identityOfGroup returns the identity of a group's pods at an address.
func (c *Compiler) identityOfGroup(addr netip.Addr, s *podGroup) *numbered[*identity] {
	if c.rules.spaces[familyOf(addr)].classOf(addr) != noBlock {
		return c.identityAt(addr, s.met, s.ports)
	}
	if s.plain == nil {
		s.plain = c.identity(true, s.met, s.ports)
	}
	s.plain = c.use(s.plain)
	return s.plain
}

// identityAt returns the identity of a pod at an address that may be in blocks.
func (c *Compiler) identityAt(addr netip.Addr, selectors []*condition, ports []containerPort) *numbered[*identity] {
	met := slices.Concat(selectors, c.rules.spaces[familyOf(addr)].classOf(addr).met)
	slices.SortFunc(met, compareConditions)
	return c.identity(true, met, ports)
}

// namedKey encodes all named ports of a pod, in their order.
func namedKey(ports []cluster.ContainerPort) string {
	var key []byte
	for _, p := range ports {
		key = append(key, p.Name...)
		key = append(key, 0, byte(p.Protocol))
		key = binary.BigEndian.AppendUint16(key, p.Number)
	}
	return string(key)
}
