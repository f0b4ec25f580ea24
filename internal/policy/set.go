package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// set is the rules of pods in one direction and one family.
type set struct {
	// rules are unordered: the set allows what any rule allows, as NetworkPolicies do.
	rules []*setRule
	// unknown is what the set allows unknown identities, pods what it allows pods of which nothing is known; made with the set.
	unknown, pods *numbered[portList]
	// requested are the port names of egress rules.
	requested []namedPort
	// results caches what peers are allowed, by the rules that match them.
	results map[string]*numbered[portList]
	// space limits the lists; nil is no limit. tooLong says that the lists would exceed every table; then they are not made.
	space   *portBudget
	tooLong bool
	// The set is active from one generation of rules to another.
	since, until uint64
	// seen is the mark of the last peer that has an entry in the set.
	seen uint64
}

// enter records that the set is active in a generation.
func (s *set) enter(generation uint64) {
	if s.until == 0 || s.until+1 != generation {
		s.since = generation
		if s.tooLong {
			s.tooLong, s.unknown, s.pods = false, nil, nil
			clear(s.results)
		}
	}
	s.until = generation
}

// setRule is a rule for some pods: its peers of one family, and the pods' own named ports as numbers.
type setRule struct {
	rule *rule
	// anyPeer and list are those of the family.
	anyPeer bool
	list    *condition
	grants  []grant
	named   []namedPort // of the peer, if it is a pod
}

// peer is the other end of the traffic. The conditions that it meets have its mark.
type peer struct {
	pod   bool
	mark  uint64
	ports []containerPort
}

// containerPort is a named port of a pod with its number.
type containerPort struct {
	namedPort
	number uint16
}

// setOf makes the set of some policies in a direction, for pods with these named ports. A name that the pods do not have allows
// nothing.
func setOf(policies []*policyRules, direction Direction, f family, ports []cluster.ContainerPort) (*set, content) {
	s := &set{results: map[string]*numbered[portList]{}}
	for _, p := range policies {
		for _, r := range p.rules[direction] {
			of := &setRule{rule: r, anyPeer: r.anyPeer[f], list: r.lists[f], grants: r.grants}
			if !of.anyPeer && !r.pods && len(r.selectors) == 0 && of.list == nil {
				continue // all its peers are blocks of the other family
			}
			if direction == Egress {
				of.named = r.named
			} else {
				of.grants = withNumbers(r, ports)
			}
			if len(of.grants) == 0 && len(of.named) == 0 {
				continue
			}
			s.rules = append(s.rules, of)
		}
	}
	s.rules = dropCovered(s.rules)
	d := newDigest(direction.String())
	for _, r := range s.rules {
		s.requested = append(s.requested, r.named...)
		r.sum(d)
	}
	return s, d.content()
}

// withNumbers returns the ports of a rule, with the numbers of a pod's named ports.
func withNumbers(r *rule, ports []cluster.ContainerPort) []grant {
	grants := slices.Clip(r.grants)
	for _, name := range r.named {
		for _, p := range ports {
			if p.Name == name.name && p.Protocol == name.protocol {
				grants = append(grants, grant{r.policy, p.Protocol, p.Number, p.Number})
			}
		}
	}
	if len(r.named) > 0 {
		grants = sortGrants(grants)
	}
	return grants
}

// sum adds everything that affects the result to a digest.
func (r *setRule) sum(d *digest) {
	d.key(r.rule.policy)
	switch {
	case r.anyPeer: // all other peers are redundant
		d.text("everybody")
	default:
		if r.rule.pods {
			d.text("pods")
		}
		r.eachCondition(func(c *condition) { d.bytes(c.content[:]) })
		d.text("")
	}
	d.grants(r.grants)
	d.named(r.named)
}

// matches reports whether the rule matches a peer.
func (r *setRule) matches(p *peer) bool {
	if r.anyPeer || r.rule.pods && p.pod || r.list != nil && r.list.mark == p.mark {
		return true
	}
	for _, c := range r.rule.selectors {
		if c.mark == p.mark {
			return true
		}
	}
	return false
}

// maxResults limits the cache of a set.
const maxResults = 1 << 14

// allowed returns what the set allows a peer.
func (s *set) allowed(p *peer, lists *registry[portList], scratch *scratch) *numbered[portList] {
	key, grants := scratch.key[:0], scratch.grants[:0]
	for i, r := range s.rules {
		if !r.matches(p) {
			continue
		}
		key = binary.BigEndian.AppendUint32(key, uint32(i))
		grants = append(grants, r.grants...)
		for _, name := range r.named {
			for _, port := range p.ports {
				if port.namedPort == name {
					key = binary.BigEndian.AppendUint32(key, 1<<31|uint32(port.protocol)<<16|uint32(port.number))
					grants = append(grants, grant{r.rule.policy, port.protocol, port.number, port.number})
				}
			}
		}
	}
	scratch.key, scratch.grants = key, grants
	if len(key) > sha256.Size {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	if known := s.results[string(key)]; known != nil {
		now := lists.use(known)
		if now != known {
			s.results[string(key)] = now
		}
		return now
	}
	if s.tooLong {
		return lists.get(portList(nil).content(), func() portList { return nil })
	}
	list := merge(grants)
	sum := list.content()
	if lists.objects[sum] == nil { // another set may have the list
		s.tooLong = !s.space.take(len(list), lists.pass)
	}
	result := lists.get(sum, func() portList { return list })
	if len(s.results) == maxResults {
		clear(s.results)
	}
	s.results[string(key)] = result
	return result
}

// portBudget keeps the rules of one namespace from using more memory than the table of ports has entries, before their demand
// is known.
type portBudget struct {
	most int
	// length is a lower bound of the entries that the lists of the sets have together.
	length int
	sets   []*numbered[*set]
}

// take reserves the entries of a list and reports whether they fit.
func (p *portBudget) take(length int, pass uint64) bool {
	if p == nil {
		return true
	}
	if p.length += length; p.length > p.most {
		p.length = length + p.inUse(pass)
	}
	return p.length <= p.most
}

// inUse counts the entries of the lists that this pass or the previous one used, and drops the others.
func (p *portBudget) inUse(pass uint64) (length int) {
	seen := map[*numbered[portList]]bool{}
	for _, s := range p.sets {
		for key, list := range s.value.results {
			if list.used+1 < pass {
				delete(s.value.results, key)
			} else if !seen[list] {
				seen[list] = true
				length += len(list.value)
			}
		}
	}
	return length
}

// scratch is memory that is reused for every peer.
type scratch struct {
	key    []byte
	grants []grant
}

// eachCondition calls do with every condition of the set's rules, with duplicates.
func (s *set) eachCondition(do func(*condition)) {
	for _, r := range s.rules {
		r.eachCondition(do)
	}
}

// eachCondition calls do with every condition that affects the rule.
func (r *setRule) eachCondition(do func(*condition)) {
	if r.anyPeer {
		return
	}
	if r.list != nil {
		do(r.list)
	}
	for _, c := range r.rule.selectors {
		do(c)
	}
}
