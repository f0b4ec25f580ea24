package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// subjects are the pods of this node that policies select.
type subjects struct {
	policies    []*cluster.NetworkPolicy // of the last snapshot
	byNamespace map[string]*index[*cluster.NetworkPolicy]
	rules       map[*cluster.NetworkPolicy]*policyRules
	selections  map[podLabels]*selection
	// invalid are the policies that cannot be parsed.
	invalid []*cluster.NetworkPolicy
	// found are the selected pods of this pass, used their selections, and sets their sets without duplicates.
	found []subject
	used  []*selection
	sets  []*numbered[*set]
}

// subject is an address of a selected pod.
type subject struct {
	pod       cluster.Key
	address   netip.Addr
	sets      *[2]*numbered[*set] // by direction; nil: not isolated
	selection *selection
}

// selection is the policies that select some pods.
type selection struct {
	policies []*policyRules // sorted by name
	isolated [2]bool        // by direction
	closed   [2]bool
	// names says that ingress rules have ports by name.
	names bool
	// sets are by the numbers of the pods' named ports.
	sets map[string]*[2][2]*numbered[*set] // family, direction
	pass uint64
}

// maxKnown limits caches: some of their content may be of pods or labels that are gone.
const maxKnown = 1 << 17

// take prepares for the policies of a snapshot.
func (s *subjects) take(policies []*cluster.NetworkPolicy) {
	if s.byNamespace != nil && cluster.Same(s.policies, policies) && len(s.selections) < maxKnown {
		return
	}
	s.policies, s.byNamespace = policies, map[string]*index[*cluster.NetworkPolicy]{}
	s.selections, s.invalid = map[podLabels]*selection{}, nil
	before := s.rules
	s.rules = map[*cluster.NetworkPolicy]*policyRules{}
	for _, p := range policies {
		x := s.byNamespace[p.Namespace]
		if x == nil {
			x = &index[*cluster.NetworkPolicy]{}
			s.byNamespace[p.Namespace] = x
		}
		x.add(p.Pods.Requirements, p)
		if r := before[p]; r != nil {
			s.rules[p] = r
		}
		if p.Invalid != "" {
			s.invalid = append(s.invalid, p)
		}
	}
}

// collectSubjects finds the sets of each pod of this node.
func (c *Compiler) collectSubjects(w *passInput) (problems []Problem) {
	s := &c.subjects
	s.take(w.snapshot.NetworkPolicies)
	s.found, s.sets, s.used = s.found[:0], s.sets[:0], s.used[:0]
	closed := map[*cluster.NetworkPolicy][]cluster.Key{}
	for i := range w.pods {
		pod := &w.pods[i]
		of := c.selectionOf(pod.labels)
		if of == nil || of.isolated == [2]bool{} {
			continue
		}
		if of.pass != c.pass {
			of.pass = c.pass
			s.used = append(s.used, of)
		}
		for _, p := range of.policies {
			if c.invalidReason(p.policy) != "" {
				closed[p.policy] = append(closed[p.policy], pod.Pod)
			}
		}
		sets := c.setsFor(of, pod.object)
		for _, addr := range pod.Addresses {
			of := subject{pod: pod.Pod, address: addr, sets: &sets[familyOf(addr)], selection: of}
			s.found = append(s.found, of)
			for _, set := range of.sets {
				if set != nil {
					s.sets = append(s.sets, set)
				}
			}
		}
	}
	slices.SortFunc(s.sets, compareNumbered[*set])
	s.sets = slices.Compact(s.sets)
	mayBeWrong := s.invalid
	if len(c.limits.rejected)+len(c.limits.entries.rejected) > 0 {
		mayBeWrong = w.snapshot.NetworkPolicies
	}
	for _, p := range mayBeWrong {
		if invalidReason := c.invalidReason(p); invalidReason != "" {
			problems = append(problems, Problem{
				Policy: p.Key(), UID: p.UID, Pods: closed[p],
				Text: fmt.Sprintf("NetworkPolicy %s: %s; isolated: %s", p.Key(), invalidReason, countPods(closed[p])),
			})
		}
	}
	return problems
}

// selectionOf returns the policies that select pods; nil if there are none.
func (c *Compiler) selectionOf(of podLabels) *selection {
	of.ofNamespace = cluster.Labels{} // policies select within one namespace
	known, found := c.subjects.selections[of]
	if found {
		return known
	}
	var selected, possible []*cluster.NetworkPolicy
	if x := c.subjects.byNamespace[of.namespace]; x != nil {
		if of.unlabelled {
			selected = x.findAny(nil)
			possible = x.all(nil)
		} else {
			selected = x.find(of.ofPod, nil)
		}
	}
	var s *selection
	if len(selected)+len(possible) > 0 {
		s = &selection{sets: map[string]*[2][2]*numbered[*set]{}}
		for _, p := range selected {
			s.policies = append(s.policies, c.rulesOf(p))
			s.isolate(p, c.invalidReason(p) != "")
		}
		for _, p := range possible {
			s.isolate(p, len(p.Pods.Requirements) > 0)
		}
		slices.SortFunc(s.policies, func(a, b *policyRules) int { return a.policy.Key().Compare(b.policy.Key()) })
		for _, p := range s.policies {
			for _, r := range p.rules[Ingress] {
				s.names = s.names || len(r.named) > 0
			}
		}
	}
	c.subjects.selections[of] = s
	return s
}

// isolate records in which directions a policy isolates, and whether it denies everything there.
func (s *selection) isolate(p *cluster.NetworkPolicy, closed bool) {
	for direction, isolates := range [2]bool{p.IsolatesIngress, p.IsolatesEgress} {
		s.isolated[direction] = s.isolated[direction] || isolates
		s.closed[direction] = s.closed[direction] || isolates && closed
	}
}

func (c *Compiler) rulesOf(p *cluster.NetworkPolicy) *policyRules {
	r := c.subjects.rules[p]
	if r == nil {
		r = c.conditions.rulesOf(p)
		c.subjects.rules[p] = r
	}
	return r
}

// setsFor returns the sets of a pod, by family and direction. pod is nil if there is no object.
func (c *Compiler) setsFor(s *selection, pod *cluster.Pod) *[2][2]*numbered[*set] {
	var ports []cluster.ContainerPort
	if s.names && pod != nil {
		ports = pod.Ports
	}
	key := namedKey(ports)
	sets := s.sets[key]
	isNew := sets == nil
	if isNew {
		sets = &[2][2]*numbered[*set]{}
		s.sets[key] = sets
	}
	for f := range sets {
		for direction := range sets[f] {
			switch {
			case !s.isolated[direction] || s.closed[direction]:
			case isNew:
				made, sum := setOf(s.policies, Direction(direction), family(f), ports)
				sets[f][direction] = c.sets.get(sum, func() *set { return made })
			default:
				sets[f][direction] = c.sets.use(sets[f][direction])
			}
		}
	}
	return sets
}

// tables returns Tables.Pods and Tables.Selected.
func (s *subjects) tables() (pods map[netip.Addr]Sets, selected map[cluster.Key][]cluster.Key) {
	pods, selected = make(map[netip.Addr]Sets, len(s.found)), map[cluster.Key][]cluster.Key{}
	for _, of := range s.found {
		pods[of.address] = Sets{Ingress: of.number(Ingress), Egress: of.number(Egress)}
		names := selected[of.pod]
		for _, p := range of.selection.policies {
			if at, known := slices.BinarySearchFunc(names, p.policy.Key(), cluster.Key.Compare); !known {
				names = slices.Insert(names, at, p.policy.Key())
			}
		}
		selected[of.pod] = names
	}
	return pods, selected
}

func (s *subject) number(direction Direction) Set {
	switch {
	case s.selection.closed[direction]:
		return DenyAll
	case s.sets[direction] == nil:
		return NotIsolated
	}
	return Set(s.sets[direction].number)
}

// countPods names pods in a sentence.
func countPods(pods []cluster.Key) string {
	switch len(pods) {
	case 0:
		return "no pod here"
	case 1:
		return "pod " + pods[0].String()
	}
	return fmt.Sprintf("%d pods here", len(pods))
}
