package network

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/beeline-cni/beeline/lab/policies"
)

// The chains of policies: the one in FORWARD, and how the names of all others begin. A packet that a policy allows gets
// the mark, which every pod's chain takes away first.
const (
	policyChain  = "POLICY"
	policyPrefix = "POLICY-"
	policyBits   = "0x10000"
	policyMark   = policyBits + "/" + policyBits
)

// policyRules are the rules of IPv4 for the pods of one node, as input to iptables-restore --noflush; stale are chains
// of before, which go.
func policyRules(state *policies.State, node string, stale []string) ([]byte, error) {
	w := &policyWriter{state: state, chains: map[string]bool{}}
	w.rule(policyChain, "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN")
	for _, pod := range state.Pods() {
		if pod.Spec.NodeName != node || addressOf4(pod) == "" {
			continue
		}
		for _, d := range []policySide{egressSide, ingressSide} {
			if err := w.pod(pod, d); err != nil {
				return nil, err
			}
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "*filter\n:%s - [0:0]\n", policyChain)
	for _, chain := range stale {
		if !w.chains[chain] {
			w.order = append(w.order, chain)
		}
	}
	for _, chain := range w.order {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	b.Write(w.rules.Bytes())
	for _, chain := range stale {
		if !w.chains[chain] {
			fmt.Fprintf(&b, "-X %s\n", chain)
		}
	}
	b.WriteString("COMMIT\n")
	return b.Bytes(), nil
}

// policySide is a direction: which end is the selected pod, and which the peer.
type policySide struct {
	kind      networkingv1.PolicyType
	own, peer string // options of iptables
}

var (
	ingressSide = policySide{networkingv1.PolicyTypeIngress, "-d", "-s"}
	egressSide  = policySide{networkingv1.PolicyTypeEgress, "-s", "-d"}
)

// policyWriter collects chains and rules.
type policyWriter struct {
	state  *policies.State
	chains map[string]bool
	order  []string
	rules  bytes.Buffer
}

func (w *policyWriter) rule(chain, format string, args ...any) {
	fmt.Fprintf(&w.rules, "-A %s %s\n", chain, fmt.Sprintf(format, args...))
}

// chain reports whether the chain is new.
func (w *policyWriter) chain(name string) bool {
	if w.chains[name] {
		return false
	}
	w.chains[name] = true
	w.order = append(w.order, name)
	return true
}

// pod writes the chain of a pod in one direction, if any policy selects it there.
func (w *policyWriter) pod(pod *corev1.Pod, d policySide) error {
	chain := ""
	for _, policy := range w.state.Policies() {
		if !slices.Contains(policy.Spec.PolicyTypes, d.kind) || policy.Namespace != pod.Namespace {
			continue
		}
		selected, err := selector(&policy.Spec.PodSelector)
		if err != nil {
			return err
		}
		if !selected.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if chain == "" {
			chain = policyPrefix + chainHash("pod "+string(d.kind)+pod.Namespace+"/"+pod.Name)
			w.chain(chain)
			w.rule(policyChain, "%s %s -j %s", d.own, addressOf4(pod), chain)
			w.rule(chain, "-j MARK --and-mark 0xfffeffff")
		}
		of := policyPrefix + chainHash("policy "+string(d.kind)+policy.Namespace+"/"+policy.Name)
		if w.chain(of) {
			if err := w.policy(policy, d, of); err != nil {
				return fmt.Errorf("policy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
		}
		w.rule(chain, "-j %s", of)
	}
	if chain != "" {
		w.rule(chain, "-m mark ! --mark %s -j DROP", policyMark)
	}
	return nil
}

// policy writes what a policy allows in one direction.
func (w *policyWriter) policy(policy *networkingv1.NetworkPolicy, d policySide, chain string) error {
	if d.kind == networkingv1.PolicyTypeIngress {
		for _, rule := range policy.Spec.Ingress {
			if err := w.allow(policy.Namespace, d, chain, rule.From, rule.Ports); err != nil {
				return err
			}
		}
		return nil
	}
	for _, rule := range policy.Spec.Egress {
		if err := w.allow(policy.Namespace, d, chain, rule.To, rule.Ports); err != nil {
			return err
		}
	}
	return nil
}

// allow writes one rule of a policy: each of its peers on each of its ports.
func (w *policyWriter) allow(namespace string, d policySide, chain string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) error {
	matches, err := w.ports(d, ports)
	if err != nil {
		return err
	}
	if len(peers) == 0 {
		for _, m := range matches {
			w.rule(chain, "%s-j MARK --or-mark %s", m, policyBits)
		}
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			w.block(d, chain, peer.IPBlock, matches)
			continue
		}
		addresses, err := w.selected(namespace, peer)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			for _, m := range matches {
				w.rule(chain, "%s %s %s-j MARK --or-mark %s", d.peer, a, m, policyBits)
			}
		}
	}
	return nil
}

// block writes a block, whose excepted parts are seen to in a chain of its own.
func (w *policyWriter) block(d policySide, chain string, block *networkingv1.IPBlock, matches []string) {
	target := "MARK --or-mark " + policyBits
	if len(block.Except) > 0 {
		name := policyPrefix + chainHash("block "+d.peer+block.CIDR+" "+strings.Join(block.Except, " "))
		if w.chain(name) {
			for _, except := range block.Except {
				w.rule(name, "%s %s -j RETURN", d.peer, except)
			}
			w.rule(name, "-j %s", target)
		}
		target = name
	}
	for _, m := range matches {
		w.rule(chain, "%s %s %s-j %s", d.peer, block.CIDR, m, target)
	}
}

// ports are matches of iptables with a blank behind each; one that is empty matches everything.
func (w *policyWriter) ports(d policySide, ports []networkingv1.NetworkPolicyPort) ([]string, error) {
	if len(ports) == 0 {
		return []string{""}, nil
	}
	var matches []string
	for _, p := range ports {
		protocol := "tcp"
		if p.Protocol != nil {
			protocol = strings.ToLower(string(*p.Protocol))
		}
		match := fmt.Sprintf("-p %s -m %[1]s ", protocol)
		switch {
		case p.Port == nil:
			matches = append(matches, match)
		case p.Port.Type == intstr.String:
			named, err := w.named(d, p.Port.StrVal, protocol)
			if err != nil {
				return nil, err
			}
			matches = append(matches, named...)
		case p.EndPort != nil:
			matches = append(matches, fmt.Sprintf("%s--dport %d:%d ", match, p.Port.IntVal, *p.EndPort))
		default:
			matches = append(matches, fmt.Sprintf("%s--dport %d ", match, p.Port.IntVal))
		}
	}
	return matches, nil
}

// named are matches of a port by its name: in ingress each pod that has it, by its address, with the number it has
// there.
func (w *policyWriter) named(d policySide, name, protocol string) ([]string, error) {
	if d.kind != networkingv1.PolicyTypeIngress {
		return nil, fmt.Errorf("port %q: this writer knows names of ports in ingress only", name)
	}
	var matches []string
	for _, pod := range w.state.Pods() {
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				if p.Name == name && strings.EqualFold(string(p.Protocol), protocol) && addressOf4(pod) != "" {
					matches = append(matches, fmt.Sprintf("-d %s -p %s -m %[2]s --dport %d ", addressOf4(pod), protocol, p.ContainerPort))
				}
			}
		}
	}
	return matches, nil
}

// selected are the addresses of the pods that a peer chooses.
func (w *policyWriter) selected(namespace string, peer networkingv1.NetworkPolicyPeer) ([]string, error) {
	ofPods, err := selector(peer.PodSelector)
	if err != nil {
		return nil, err
	}
	ofNamespaces, err := selector(peer.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	chosen := map[string]bool{}
	var addresses []string
	for _, pod := range w.state.Pods() {
		in, known := chosen[pod.Namespace]
		if !known {
			in = pod.Namespace == namespace
			if of := w.state.Namespace(pod.Namespace); peer.NamespaceSelector != nil {
				in = of != nil && ofNamespaces.Matches(labels.Set(of.Labels))
			}
			chosen[pod.Namespace] = in
		}
		if !in || !ofPods.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if a := addressOf4(pod); a != "" {
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}

// selector is one that chooses everything where the API has none.
func selector(by *metav1.LabelSelector) (labels.Selector, error) {
	if by == nil {
		return labels.Everything(), nil
	}
	s, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		return nil, fmt.Errorf("read selector: %w", err)
	}
	return s, nil
}

// addressOf4 is the pod's IPv4 address, empty if it has none.
func addressOf4(pod *corev1.Pod) string {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is4() {
			return ip.IP
		}
	}
	return ""
}
