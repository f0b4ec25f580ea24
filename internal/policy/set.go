package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// set is the rules that hold for pods in one direction and one family.
type set struct {
	// rules have no order: what any of them allows is allowed. So it is with NetworkPolicies; ordered tiers of policies there are in package
	// evaluate alone.
	rules []*setRule
	// unknown is what is allowed those of whom nothing is known, pods what is allowed pods of which nothing is known; made when the set is.
	unknown, pods *numbered[portList]
	// asked is the names that rules for egress use.
	asked []namedPort
	// results has what sorts of peers are allowed, by the rules that they meet.
	results map[string]*numbered[portList]
	// space bounds the lists; nil if nothing does. tooLong says that there would be more of them than any table has room for: they are not made.
	space   *portSpace
	tooLong bool
	// It is in force since one generation of rules and until another.
	since, until uint64
	// seen is the mark of the last peer that has to do with the set.
	seen uint64
}

// enter notes that the set is in force in a generation.
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

// setRule is a rule as it is for some pods: the peers of one family, and ports of which the pods' own have numbers.
type setRule struct {
	rule *rule
	// everybody and list are those of the family.
	everybody bool
	list      *condition
	grants    []grant
	named     []namedPort // of the peer, if it is a pod
}

// peer is whom a set is asked about. The conditions that it meets have its mark.
type peer struct {
	pod   bool
	mark  uint64
	ports []containerPort
}

// containerPort is the number of a named port of a pod.
type containerPort struct {
	namedPort
	number uint16
}

// setOf makes the set of some policies in a direction, for pods with these named ports. Names that the pods do not have allow nothing.
func setOf(policies []*policyRules, direction Direction, f family, ports []cluster.ContainerPort) (*set, content) {
	s := &set{results: map[string]*numbered[portList]{}}
	for _, p := range policies {
		for _, r := range p.rules[direction] {
			of := &setRule{rule: r, everybody: r.everybody[f], list: r.lists[f], grants: r.grants}
			if !of.everybody && !r.pods && len(r.selectors) == 0 && of.list == nil {
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
	s.rules = withoutCovered(s.rules)
	d := newDigest(direction.String())
	for _, r := range s.rules {
		s.asked = append(s.asked, r.named...)
		r.sum(d)
	}
	return s, d.content()
}

// withNumbers gives the ports of a rule with the numbers that their names have in a pod.
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
		grants = inOrder(grants)
	}
	return grants
}

// sum adds all that makes a difference to a digest.
func (r *setRule) sum(d *digest) {
	d.key(r.rule.policy)
	switch {
	case r.everybody: // whatever else it has
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

// matches tells whether a peer meets what the rule asks of peers.
func (r *setRule) matches(p *peer) bool {
	if r.everybody || r.rule.pods && p.pod || r.list != nil && r.list.mark == p.mark {
		return true
	}
	for _, c := range r.rule.selectors {
		if c.mark == p.mark {
			return true
		}
	}
	return false
}

// maxResults bounds what a set remembers.
const maxResults = 1 << 14

// allowed gives what the set allows a peer.
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

// portSpace keeps the rules of one namespace from asking for more memory than the table of ports has room for, before it is known what they ask for.
type portSpace struct {
	most int
	// length is at least how many entries the lists of sets have together.
	length int
	sets   []*numbered[*set]
}

// take tells whether there is room for a list.
func (p *portSpace) take(length int, pass uint64) bool {
	if p == nil {
		return true
	}
	if p.length += length; p.length > p.most {
		p.length = length + p.inUse(pass)
	}
	return p.length <= p.most
}

// inUse is how many entries the lists have that this pass or the one before has used; others are forgotten.
func (p *portSpace) inUse(pass uint64) (length int) {
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

// scratch is memory that is used for one peer after the other.
type scratch struct {
	key    []byte
	grants []grant
}

// eachCondition calls do with every condition that the set's rules ask for, some several times.
func (s *set) eachCondition(do func(*condition)) {
	for _, r := range s.rules {
		r.eachCondition(do)
	}
}

// eachCondition calls do with every condition that makes a difference to the rule.
func (r *setRule) eachCondition(do func(*condition)) {
	if r.everybody {
		return
	}
	if r.list != nil {
		do(r.list)
	}
	for _, c := range r.rule.selectors {
		do(c)
	}
}
