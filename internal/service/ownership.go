package service

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// owner has frontends: it is a Service, or a pod with host ports.
type owner struct {
	pod bool
	key cluster.Key
}

// String names the owner.
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

// request is an owner's request for a frontend.
type request struct {
	by   owner
	kind Kind
}

// ranks orders requests of different kinds: addresses that the cluster allocates come first, what any user may write into a
// Service last.
var ranks = map[Kind]int{KindClusterIP: 0, KindLoadBalancer: 1, KindNodePort: 2, KindHostPort: 3, KindExternalIP: 4}

func (c request) compare(other request) int {
	if c.kind == other.kind && c.by != other.by {
		for _, of := range []request{c, other} {
			if of.by == (owner{key: kubernetesService}) { // by which the agent itself, and every pod, reaches the API server
				if of.by == c.by {
					return -1
				}
				return 1
			}
		}
	}
	return cmp.Or(cmp.Compare(ranks[c.kind], ranks[other.kind]), c.by.compare(other.by))
}

// ownership decides who owns a frontend that several request. It does not depend on the order of requests, so all nodes decide
// alike, also after a restart.
type ownership struct {
	// requests are those for each frontend, the owner's first. contested counts the frontends with several.
	requests  map[Frontend][]request
	contested int
	// reported are the problems of contested frontends, unless stale.
	reported []Problem
	stale    bool
}

// take adds a request; each owner has at most one for a frontend. loser is the previous owner if it loses the frontend.
func (c *ownership) take(f Frontend, by request) (loser owner, lost bool) {
	at, _ := slices.BinarySearchFunc(c.requests[f], by, request.compare)
	all := slices.Insert(c.requests[f], at, by)
	c.requests[f] = all
	if len(all) == 1 {
		return owner{}, false
	}
	if c.stale = true; len(all) == 2 {
		c.contested++
	}
	if at > 0 {
		return owner{}, false
	}
	return all[1].by, true
}

// release removes a request. successor is the next owner, if any.
func (c *ownership) release(f Frontend, by owner) (successor owner, found bool) {
	all := c.requests[f]
	if len(all) < 2 {
		delete(c.requests, f)
		return owner{}, false
	}
	c.stale = true
	owned := all[0].by == by
	all = slices.DeleteFunc(all, func(other request) bool { return other.by == by })
	if c.requests[f] = all; len(all) == 1 {
		c.contested--
	}
	if !owned {
		return owner{}, false
	}
	return all[0].by, true
}

// granted returns the ports without the entries whose frontends others own.
func (c *ownership) granted(by owner, ports []Port) []Port {
	lost := func(e Entry) bool { return c.requests[e.Frontend][0].by != by }
	if c.contested == 0 || !slices.ContainsFunc(ports, func(p Port) bool { return slices.ContainsFunc(p.Entries, lost) }) {
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

// lost are the frontends that an owner requests and others own, as the owner calls them: a NodePort is one of many addresses.
type lost struct {
	words map[string]bool
	// first is the problem of the first of them.
	first Problem
}

// problems reports once for each owner which of its frontends others own.
func (c *ownership) problems(uid func(owner) string) []Problem {
	if !c.stale {
		return c.reported
	}
	losers := map[owner]*lost{}
	for f, all := range c.requests {
		for _, loser := range all[1:] {
			of := losers[loser.by]
			if of == nil {
				of = &lost{words: map[string]bool{}}
				losers[loser.by] = of
			}
			if len(of.words) < mostCounted {
				of.words[loser.wording(f)] = true
			}
			p := loser.by.problem(uid(loser.by), all[0].by.pod, fmt.Sprintf("%s: %s does not answer: %s", loser.by, loser.wording(f), all[0].reason(f, loser.kind)))
			if of.first.Text == "" || p.Text < of.first.Text {
				of.first = p
			}
		}
	}
	c.reported, c.stale = nil, false
	for _, of := range losers {
		if more := len(of.words) - 1; more > 0 {
			of.first.Text += fmt.Sprintf(" (and %s of its others do not either)", count(more))
		}
		c.reported = append(c.reported, of.first)
	}
	return c.reported
}

// mostCounted limits the count of one owner's lost frontends.
const mostCounted = 1000

func count(n int) string {
	if n >= mostCounted-1 {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// wording names a frontend as its owner does.
func (c request) wording(f Frontend) string {
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

// reason says why the owner has what a request of that kind wanted.
func (c request) reason(f Frontend, loser Kind) string {
	if c.kind == loser {
		return fmt.Sprintf("%s has the same", c.by)
	}
	return fmt.Sprintf("it is %s of %s", map[Kind]string{
		KindClusterIP: "the cluster IP", KindLoadBalancer: "the load balancer's address", KindNodePort: fmt.Sprintf("NodePort %d", f.Port),
		KindHostPort: fmt.Sprintf("hostPort %d", f.Port), KindExternalIP: "the externalIP",
	}[c.kind], c.by)
}
