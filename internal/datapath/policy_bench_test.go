package datapath

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// BenchmarkPolicy gives, as BenchmarkPrograms does, what judging a packet costs: nobody asks about it, a permit covers it, its session is
// known, it is judged by rules of one entry or of very many blocks.
func BenchmarkPolicy(b *testing.B) {
	const data, last = tcpACK | tcpPSH, tcpRST // a reset without a session begins none: it is judged each time
	for _, family := range families {
		from, to := end{podA, 40000}.at(family), end{podA2, 80}.at(family)
		segment := func(flags byte) run { return podSends(segmentOf(fromPod(), from, to, flags).ttl(255)) }
		ping := podSends(echoOf(fromPod(), from.Addr(), to.Addr(), 7, false).ttl(255))
		for _, c := range []struct {
			name    string
			policed bool
			blocks  int
			run
		}{
			{"unpoliced", false, 0, segment(data)},
			{"permit", true, 0, segment(data)},
			{"session", true, 0, ping},
			{"judged", true, 0, segment(last)},
			{"judged,100000-blocks", true, 100000, segment(last)},
		} {
			b.Run(fmt.Sprintf("%s/IPv%d", c.name, family), func(b *testing.B) {
				p := newPolicyRig(b, Config{EBPFRouting: true, Masquerade: true, Services: true})
				for i := range c.blocks {
					a := podA.v4.As4()
					a[0], a[1], a[2], a[3] = 100, byte(i>>16), byte(i>>8), byte(i)
					p.tables.Blocks[prefix(fmt.Sprintf("%d.%d.%d.%d/32", a[0], a[1], a[2], a[3]))] = idWorld
				}
				if c.policed {
					for _, pod := range []member{podA, podA2} {
						everything := map[policy.Identity]policy.Ports{idA: portsEvery, idA2: portsEvery}
						p.govern(b, pod, policy.Sets{Ingress: rules, Egress: rules}, inSet(rules, everything))
					}
				}
				p.measure(b, c.run, verdictRedirect)
			})
		}
	}
}
