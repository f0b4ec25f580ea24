package policy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// peers are the pods of the cluster as those whom rules are about.
type peers struct {
	found []peerAddress
	// at has, while they are looked for, the index in found.
	at map[netip.Addr]int32
	// known are the identities that pods have had since the conditions in force have changed.
	known map[peerKey]*numbered[*identity]
}

// peerAddress is an address with its identity. pod is whose it is.
type peerAddress struct {
	address  netip.Addr
	identity *numbered[*identity]
	pod      cluster.Key
	local    bool
}

type peerKey struct {
	pods   *podClass
	blocks *blockClass
	ports  string
}

// takePeers finds the identities of all pods. Who is told by this node to have an address has it; of other pods that claim the same
// one nothing is known: whatever one of them is allowed would be the other's too.
func (c *Compiler) takePeers(w *world) (problems []Problem) {
	p := &c.peers
	p.found = p.found[:0]
	if p.at == nil {
		p.at = map[netip.Addr]int32{}
	}
	clear(p.at)
	complain := func(format string, args ...any) {
		problems = append(problems, Problem{Text: fmt.Sprintf(format, args...)})
	}
	for i := range w.pods {
		pod := &w.pods[i]
		for _, addr := range pod.Addresses {
			if w.own[addr] {
				complain("address %s of pod %s is this node's own; policies do not hold between pods and their node", addr, pod.Pod)
				continue
			}
			if at, taken := p.at[addr]; taken {
				complain("address %s is that of pod %s and of pod %s, both of this node", addr, p.found[at].pod, pod.Pod)
				continue
			}
			c.addPeer(peerAddress{address: addr, pod: pod.Pod, local: true}, pod.labels, pod.object)
		}
	}
	for _, pod := range w.snapshot.Pods {
		if pod.HostNetwork || pod.Ended || len(pod.Addresses) == 0 || w.isLocal(pod) {
			continue
		}
		for _, addr := range pod.Addresses {
			at, taken := p.at[addr]
			switch {
			case w.own[addr]:
				complain("address %s of pod %s is this node's own; policies take it for the node", addr, pod.Key())
			case taken && p.found[at].local:
				complain("address %s is claimed by pod %s and is here that of pod %s", addr, pod.Key(), p.found[at].pod)
			case taken:
				complain("address %s is claimed by pods %s and %s; policies take it for a pod of which nothing is known", addr, p.found[at].pod, pod.Key())
				p.found[at].identity = c.peerIdentity(addr, podLabels{placeless: true}, nil)
			default:
				c.addPeer(peerAddress{address: addr, pod: pod.Key()}, w.labelsOf(pod), pod)
			}
		}
	}
	return problems
}

func (c *Compiler) addPeer(of peerAddress, labels podLabels, pod *cluster.Pod) {
	of.identity = c.peerIdentity(of.address, labels, pod)
	c.peers.at[of.address] = int32(len(c.peers.found))
	c.peers.found = append(c.peers.found, of)
}

func (c *Compiler) peerIdentity(addr netip.Addr, labels podLabels, pod *cluster.Pod) *numbered[*identity] {
	ports := portsOf(pod, c.rules.asked)
	key := peerKey{pods: c.rules.choice.classOf(labels), blocks: c.rules.spaces[familyOf(addr)].classOf(addr), ports: portsKey(ports)}
	known := c.peers.known[key]
	if known != nil {
		now := c.use(known)
		if now != known {
			c.peers.known[key] = now
		}
		return now
	}
	met := slices.Concat(key.pods.selectors, key.blocks.met)
	slices.SortFunc(met, compareConditions)
	known = c.identity(true, met, ports)
	c.peers.known[key] = known
	return known
}

func portsKey(ports []containerPort) string {
	var key []byte
	for _, p := range ports {
		key = append(key, p.name...)
		key = append(key, 0, byte(p.protocol))
		key = binary.BigEndian.AppendUint16(key, p.number)
	}
	return string(key)
}
