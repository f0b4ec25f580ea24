package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// takeAddresses notes the addresses of a pod here. at has those of the pods before.
func (w *world) takeAddresses(i int, at map[netip.Addr]int) {
	pod := &w.pods[i]
	for _, addr := range pod.Addresses {
		other, taken := at[addr]
		switch {
		case w.own[addr]:
			w.complain("address %s of pod %s is this node's own; policies do not hold between pods and their node", addr, pod.Pod)
		case taken:
			w.complain("address %s is that of pod %s and of pod %s, both of this node", addr, w.pods[other].Pod, pod.Pod)
		default:
			at[addr] = i
		}
	}
}

func (w *world) complain(format string, args ...any) {
	w.complaints = append(w.complaints, Problem{Text: fmt.Sprintf(format, args...)})
}

// complain says of each address that pods of other nodes claim and do not have alone what becomes of it.
func (c *Compiler) complain(w *world) (problems []Problem) {
	p := &c.peers
	complain := func(format string, args ...any) {
		problems = append(problems, Problem{Text: fmt.Sprintf(format, args...)})
	}
	for _, addr := range slices.SortedFunc(maps.Keys(p.odd), netip.Addr.Compare) {
		all := p.contested[addr]
		if all == nil {
			all = []*cluster.Pod{p.at[addr.As16()].pod}
		}
		local, isLocal := p.localAt[addr]
		for n, pod := range all {
			switch {
			case w.own[addr]:
				complain("address %s of pod %s is this node's own; policies take it for the node", addr, pod.Key())
			case isLocal:
				complain("address %s is claimed by pod %s and is here that of pod %s", addr, pod.Key(), w.pods[local].Pod)
			case n > 0:
				complain("address %s is claimed by pods %s and %s; policies take it for a pod of which nothing is known", addr, all[0].Key(), pod.Key())
			}
		}
	}
	return problems
}
