package evaluate

import (
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// String returns the policy and the path of the rule's field, such as "prod/web spec.ingress[0]".
func (r Rule) String() string { return fmt.Sprintf("%s spec.%s[%d]", r.Policy, r.Direction, r.Index) }

// String names what the rule lacks.
func (n Near) String() string {
	if n.Peer {
		return fmt.Sprintf("%s allows the peer, but not the port", n.Rule)
	}
	return fmt.Sprintf("%s allows the port, but not the peer", n.Rule)
}

// Explain describes the decisions in a few lines, the summary first, for the messages of failed tests. The agent has its own
// text for users.
func (v Verdict) Explain() []string {
	if v.Err != nil {
		return []string{v.Err.Error()}
	}
	summary := "allowed"
	switch {
	case !v.Egress.Allowed && !v.Ingress.Allowed:
		summary = "not allowed, neither by the source nor by the destination"
	case !v.Egress.Allowed:
		summary = "not allowed by the source"
	case !v.Ingress.Allowed:
		summary = "not allowed by the destination"
	}
	return append(append([]string{summary}, v.Egress.Explain()...), v.Ingress.Explain()...)
}

// Explain describes the decision in one line, and one more for each rule.
func (j Decision) Explain() []string {
	about := fmt.Sprintf("%s of %s: ", j.Direction, j.Pod)
	switch j.Reason {
	case ReasonNoPod:
		return []string{fmt.Sprintf("%s: allowed, this end is %s", j.Direction, j.Reason)}
	case ReasonItself, ReasonNode:
		return []string{about + "always allowed, the other end is " + string(j.Reason)}
	case ReasonNotIsolated:
		return []string{about + "allowed, no policy selects it in this direction"}
	case ReasonRule:
		return append([]string{about + "allowed"}, indented(j.Rules)...)
	case ReasonInvalid:
		return []string{about + "not allowed, since policies that select it are invalid: " + joined(j.Invalid)}
	}
	lines := []string{about + "not allowed by any of the policies that select it: " + joined(j.Isolating)}
	if len(j.Near) == 0 {
		return append(lines, "  none of their rules allows the peer or the port")
	}
	return append(lines, indented(j.Near)...)
}

func indented[T fmt.Stringer](all []T) []string {
	var lines []string
	for _, s := range all {
		lines = append(lines, "  "+s.String())
	}
	return lines
}

func joined(keys []cluster.Key) string {
	var all []string
	for _, key := range keys {
		all = append(all, key.String())
	}
	return strings.Join(all, ", ")
}
