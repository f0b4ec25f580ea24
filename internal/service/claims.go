package service

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// owner is who has frontends: a Service, or a pod with host ports.
type owner struct {
	pod bool
	key cluster.Key
}

// String names the owner to people.
func (o owner) String() string {
	if o.pod {
		return "Pod " + o.key.String()
	}
	return "Service " + o.key.String()
}

func (o owner) compare(other owner) int {
	if order := o.key.Compare(other.key); order != 0 || o.pod == other.pod {
		return order
	}
	if o.pod {
		return 1
	}
	return -1
}

// claim is an owner's wish for a frontend.
type claim struct {
	by   owner
	kind Kind
}

// ranks decides between claims of different kinds. Addresses that the cluster itself has given come first, what any user may write into a
// Service last.
var ranks = map[Kind]int{KindClusterIP: 0, KindLoadBalancer: 1, KindNodePort: 2, KindHostPort: 3, KindExternalIP: 4}

func (c claim) compare(other claim) int {
	if c.kind == other.kind && c.by != other.by {
		for _, of := range []claim{c, other} {
			if of.by == (owner{key: kubernetesService}) { // what the agent itself, and every pod, reaches the API server by
				if of.by == c.by {
					return -1
				}
				return 1
			}
		}
	}
	return cmp.Or(cmp.Compare(ranks[c.kind], ranks[other.kind]), c.by.compare(other.by))
}

// claims decides who has a frontend that several want. Who was first does not matter, so all nodes decide alike and go on so after a restart.
type claims struct {
	winners map[Frontend]claim
	// contested are the frontends with several claims, the winner first.
	contested map[Frontend][]claim
	// said are the problems of contested, unless stale.
	said  []Problem
	stale bool
}

func newClaims() claims {
	return claims{winners: map[Frontend]claim{}, contested: map[Frontend][]claim{}}
}

// take notes a claim; each owner has one at most for a frontend. If another had the frontend and loses it, loser is that one.
func (c *claims) take(f Frontend, by claim) (loser owner, lost bool) {
	winner, taken := c.winners[f]
	if !taken {
		c.winners[f] = by
		return owner{}, false
	}
	c.stale = true
	all := c.contested[f]
	if all == nil {
		all = []claim{winner}
	}
	at, _ := slices.BinarySearchFunc(all, by, claim.compare)
	c.contested[f] = slices.Insert(all, at, by)
	if at > 0 {
		return owner{}, false
	}
	c.winners[f] = by
	return winner.by, true
}

// release takes a claim back. If another gets the frontend by it, heir is that one.
func (c *claims) release(f Frontend, by owner) (heir owner, found bool) {
	all := c.contested[f]
	if all == nil {
		delete(c.winners, f)
		return owner{}, false
	}
	c.stale = true
	all = slices.DeleteFunc(all, func(other claim) bool { return other.by == by })
	if len(all) > 1 {
		c.contested[f] = all
	} else {
		delete(c.contested, f)
	}
	if c.winners[f].by != by {
		return owner{}, false
	}
	c.winners[f] = all[0]
	return all[0].by, true
}

// won gives the ports without the entries whose frontends others have.
func (c *claims) won(by owner, ports []Port) []Port {
	lost := func(e Entry) bool { return c.winners[e.Frontend].by != by }
	if len(c.contested) == 0 || !slices.ContainsFunc(ports, func(p Port) bool { return slices.ContainsFunc(p.Entries, lost) }) {
		return ports
	}
	var left []Port
	for _, p := range ports {
		if p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), lost); len(p.Entries) > 0 {
			left = append(left, p)
		}
	}
	return left
}

// lost are the frontends that an owner wants and others have, each in the words of its owner: a NodePort is one of many addresses.
type lost struct {
	words map[string]bool
	// first is the problem with the first of them.
	first Problem
}

// problems says once of each owner which of its claims did not win, and who did.
func (c *claims) problems(uid func(owner) string) []Problem {
	if !c.stale {
		return c.said
	}
	losers := map[owner]*lost{}
	for f, all := range c.contested {
		for _, loser := range all[1:] {
			of := losers[loser.by]
			if of == nil {
				of = &lost{words: map[string]bool{}}
				losers[loser.by] = of
			}
			if len(of.words) < mostCounted {
				of.words[loser.wording(f)] = true
			}
			p := loser.by.problem(uid(loser.by), all[0].by.pod, fmt.Sprintf("%s: %s does not answer: %s", loser.by, loser.wording(f), all[0].grant(f, loser.kind)))
			if of.first.Text == "" || p.Text < of.first.Text {
				of.first = p
			}
		}
	}
	c.said, c.stale = nil, false
	for _, of := range losers {
		if more := len(of.words) - 1; more > 0 {
			of.first.Text += fmt.Sprintf(" (and %s of its others do not either)", count(more))
		}
		c.said = append(c.said, of.first)
	}
	return c.said
}

// mostCounted bounds what is counted of one owner's lost frontends.
const mostCounted = 1000

func count(n int) string {
	if n >= mostCounted-1 {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// wording names a frontend as its owner does.
func (c claim) wording(f Frontend) string {
	switch c.kind {
	case KindNodePort:
		return fmt.Sprintf("NodePort %d/%s", f.Port, f.Protocol)
	case KindHostPort:
		return fmt.Sprintf("hostPort %d/%s", f.Port, f.Protocol)
	case KindClusterIP:
		return fmt.Sprintf("cluster IP %s, port %d/%s,", f.Address, f.Port, f.Protocol)
	case KindLoadBalancer:
		return fmt.Sprintf("load balancer's address %s, port %d/%s,", f.Address, f.Port, f.Protocol)
	}
	return fmt.Sprintf("externalIP %s, port %d/%s,", f.Address, f.Port, f.Protocol)
}

// grant says why a winner has what a claim of that kind asked for.
func (c claim) grant(f Frontend, loser Kind) string {
	if c.kind == loser {
		return fmt.Sprintf("%s has the same", c.by)
	}
	return fmt.Sprintf("it is %s of %s", map[Kind]string{
		KindClusterIP: "the cluster IP", KindLoadBalancer: "the load balancer's address", KindNodePort: fmt.Sprintf("NodePort %d", f.Port),
		KindHostPort: fmt.Sprintf("hostPort %d", f.Port), KindExternalIP: "the externalIP",
	}[c.kind], c.by)
}
