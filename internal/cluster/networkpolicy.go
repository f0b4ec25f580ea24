package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NetworkPolicy is a NetworkPolicy.
type NetworkPolicy struct {
	Namespace, Name string
	// UID is that of the object; empty if it has none.
	UID string
	// Invalid says why the policy is invalid, in a sentence without its name; empty if it is valid. An invalid policy
	// has no rules and isolates at least what it may have meant: Pods selects the whole namespace if its own selector
	// is invalid, and it isolates in both directions unless its policyTypes say otherwise.
	Invalid string
	// Pods selects the pods of its namespace that the policy applies to.
	Pods Selector
	// IsolatesIngress and IsolatesEgress are the directions in which it denies what no rule allows.
	IsolatesIngress, IsolatesEgress bool
	// Ingress and Egress are the rules. A direction that is not isolated has none here.
	Ingress, Egress []PolicyRule
}

// Key gives namespace and name.
func (p *NetworkPolicy) Key() Key { return Key{p.Namespace, p.Name} }

// PolicyRule allows traffic with any of Peers on any of Ports. No peers means all peers, no ports all ports.
type PolicyRule struct {
	Peers []PolicyPeer
	Ports []PolicyPort
}

// PolicyPeer is either an ipBlock or a selector of pods.
type PolicyPeer struct {
	// Block is invalid if the peer selects pods. Except are parts of it to leave out.
	Block  netip.Prefix
	Except []netip.Prefix
	// Namespaces selects the namespaces of the pods; nil means the policy's own. Pods selects among their pods; nil
	// selects all.
	Namespaces, Pods *Selector
}

// PolicyPort is a port, a range of ports or a named port of the pod; without any, every port of the protocol.
type PolicyPort struct {
	Protocol Protocol
	// First and Last are the range; both 0 without one.
	First, Last uint16
	// Name is empty unless the port is given by name.
	Name string
}

// reduceNetworkPolicy checks a NetworkPolicy and reduces it. It gives a result also with errors: see
// NetworkPolicy.Invalid.
func reduceNetworkPolicy(p *networkingv1.NetworkPolicy) (*NetworkPolicy, []fieldError) {
	var c checks
	key := c.key(p.Namespace, p.Name, validation.IsDNS1123Subdomain)
	policy := &NetworkPolicy{Namespace: key.Namespace, Name: key.Name, UID: string(p.UID)}
	before := len(c.errs)
	if policy.Pods = c.selector("spec.podSelector", &p.Spec.PodSelector); len(c.errs) > before {
		policy.Pods = Selector{}
	}
	before = len(c.errs)
	for i, t := range p.Spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			policy.IsolatesIngress = true
		case networkingv1.PolicyTypeEgress:
			policy.IsolatesEgress = true
		default:
			c.fail(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is neither Ingress nor Egress", t)
		}
	}
	if len(c.errs) > before {
		policy.IsolatesIngress, policy.IsolatesEgress = true, true
	} else if len(p.Spec.PolicyTypes) == 0 { // the API server's default, for manifests
		policy.IsolatesIngress, policy.IsolatesEgress = true, len(p.Spec.Egress) > 0
	}
	for i, rule := range p.Spec.Ingress {
		policy.Ingress = append(policy.Ingress, c.rule(fmt.Sprintf("spec.ingress[%d]", i), "from", rule.From, rule.Ports))
	}
	for i, rule := range p.Spec.Egress {
		policy.Egress = append(policy.Egress, c.rule(fmt.Sprintf("spec.egress[%d]", i), "to", rule.To, rule.Ports))
	}
	if !policy.IsolatesIngress || len(c.errs) > 0 {
		policy.Ingress = nil
	}
	if !policy.IsolatesEgress || len(c.errs) > 0 {
		policy.Egress = nil
	}
	policy.Invalid = inShort(c.errs)
	return policy, c.errs
}

// inShort describes what is wrong with an object in one sentence.
func inShort(errs []fieldError) string {
	switch len(errs) {
	case 0:
		return ""
	case 1:
		return errs[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", errs[0], len(errs)-1)
}

func (c *checks) rule(field, peers string, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (rule PolicyRule) {
	for i, peer := range from {
		rule.Peers = append(rule.Peers, c.peer(fmt.Sprintf("%s.%s[%d]", field, peers, i), peer))
	}
	for i, port := range ports {
		rule.Ports = append(rule.Ports, c.policyPort(fmt.Sprintf("%s.ports[%d]", field, i), port))
	}
	return rule
}

func (c *checks) peer(field string, p networkingv1.NetworkPolicyPeer) (peer PolicyPeer) {
	switch {
	case p.IPBlock != nil && (p.PodSelector != nil || p.NamespaceSelector != nil):
		c.fail(field, "has both an ipBlock and a selector")
	case p.IPBlock == nil && p.PodSelector == nil && p.NamespaceSelector == nil:
		c.fail(field, "has neither an ipBlock nor a selector")
	}
	if p.IPBlock != nil {
		peer.Block = c.block(field+".ipBlock.cidr", p.IPBlock.CIDR)
		for i, except := range p.IPBlock.Except {
			at := fmt.Sprintf("%s.ipBlock.except[%d]", field, i)
			prefix := c.block(at, except)
			if prefix.IsValid() && peer.Block.IsValid() && (!peer.Block.Contains(prefix.Addr()) || prefix.Bits() <= peer.Block.Bits()) {
				c.fail(at, "%s is not a part of %s", prefix, peer.Block)
			}
			peer.Except = append(peer.Except, prefix)
		}
	}
	if p.NamespaceSelector != nil {
		s := c.selector(field+".namespaceSelector", p.NamespaceSelector)
		peer.Namespaces = &s
	}
	if p.PodSelector != nil {
		s := c.selector(field+".podSelector", p.PodSelector)
		peer.Pods = &s
	}
	return peer
}

// block reads a CIDR of peers or clients. API servers accept host bits, or did so once; they are ignored.
func (c *checks) block(field, text string) netip.Prefix {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().Is4In6() {
		c.fail(field, "%q is not a CIDR such as 10.1.0.0/24", text)
		return netip.Prefix{}
	}
	return prefix.Masked()
}

func (c *checks) policyPort(field string, p networkingv1.NetworkPolicyPort) PolicyPort {
	port := PolicyPort{Protocol: TCP}
	if p.Protocol != nil {
		port.Protocol = c.protocol(field+".protocol", *p.Protocol)
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		c.fail(field+".endPort", "without a port")
	case p.Port == nil:
	case p.Port.Type == intstr.String:
		port.Name = Intern(p.Port.StrVal)
		if reasons := validation.IsValidPortName(port.Name); len(reasons) > 0 {
			c.fail(field+".port", "%s", strings.Join(reasons, ", "))
		}
		if p.EndPort != nil {
			c.fail(field+".endPort", "with a port that is given by name")
		}
	default:
		port.First = c.port(field+".port", p.Port.IntVal)
		port.Last = port.First
		if p.EndPort != nil {
			port.Last = c.port(field+".endPort", *p.EndPort)
			if port.Last < port.First {
				c.fail(field+".endPort", "%d is less than the port, %d", port.Last, port.First)
			}
		}
	}
	return port
}
