package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/apiserver"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The chains of policies: the one in FORWARD, and how the names of all others begin. A packet that a policy allows gets
// the mark, which every pod's chain takes away first.
const (
	policyChain  = "POLICY"
	policyPrefix = "POLICY-"
	policyBits   = "0x10000"
	policyMark   = policyBits + "/" + policyBits
	policyAllow  = "MARK --or-mark " + policyBits
)

// policyRules are the rules of IPv4 for the pods of one node, as input to iptables-restore --noflush; stale are chains
// of before, which go.
func policyRules(server *apiserver.Server, node string, stale []string) (string, error) {
	w := &policyWriter{
		pods: apiserver.Objects[*corev1.Pod](server), policies: apiserver.Objects[*networkingv1.NetworkPolicy](server),
		namespaces: map[string]*corev1.Namespace{}, chains: map[string]bool{},
	}
	for _, n := range apiserver.Objects[*corev1.Namespace](server) {
		w.namespaces[n.Name] = n
	}
	w.rule(policyChain, "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN")
	for _, pod := range w.pods {
		if pod.Spec.NodeName != node || addressOf4(pod) == "" {
			continue
		}
		for _, d := range []policySide{egressSide, ingressSide} {
			if err := w.pod(pod, d); err != nil {
				return "", err
			}
		}
	}
	stale = slices.DeleteFunc(stale, func(chain string) bool { return w.chains[chain] })
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:%s - [0:0]\n", policyChain)
	for _, chain := range append(w.order, stale...) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	b.WriteString(w.text.String())
	for _, chain := range stale {
		fmt.Fprintf(&b, "-X %s\n", chain)
	}
	b.WriteString("COMMIT\n")
	return b.String(), nil
}

// policySide is a direction: which end is the selected pod, and which the peer.
type policySide struct {
	kind      networkingv1.PolicyType
	own, peer string // options of iptables
}

// rules are those of a policy in this direction, in the form that ingress has.
func (d policySide) rules(spec networkingv1.NetworkPolicySpec) []networkingv1.NetworkPolicyIngressRule {
	if d.kind == networkingv1.PolicyTypeIngress {
		return spec.Ingress
	}
	var rules []networkingv1.NetworkPolicyIngressRule
	for _, r := range spec.Egress {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: r.To, Ports: r.Ports})
	}
	return rules
}

var (
	ingressSide = policySide{networkingv1.PolicyTypeIngress, "-d", "-s"}
	egressSide  = policySide{networkingv1.PolicyTypeEgress, "-s", "-d"}
)

// policyWriter collects chains and rules.
type policyWriter struct {
	pods       []*corev1.Pod
	policies   []*networkingv1.NetworkPolicy
	namespaces map[string]*corev1.Namespace
	chains     map[string]bool
	order      []string
	text       strings.Builder
}

func (w *policyWriter) rule(chain, format string, args ...any) {
	fmt.Fprintf(&w.text, "-A %s %s\n", chain, fmt.Sprintf(format, args...))
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
	for _, policy := range w.policies {
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

// policy writes what a policy allows in one direction: of each rule each of its peers on each of its ports.
func (w *policyWriter) policy(policy *networkingv1.NetworkPolicy, d policySide, chain string) error {
	for _, rule := range d.rules(policy.Spec) {
		ports, err := w.ports(d, rule.Ports)
		if err != nil {
			return err
		}
		allow := func(peers []string, target string) {
			for _, peer := range peers {
				for _, port := range ports {
					w.rule(chain, "%s%s-j %s", peer, port, target)
				}
			}
		}
		if len(rule.From) == 0 {
			allow([]string{""}, policyAllow)
		}
		for _, peer := range rule.From {
			if peer.IPBlock != nil {
				allow([]string{d.peer + " " + peer.IPBlock.CIDR + " "}, w.block(d, peer.IPBlock))
				continue
			}
			selected, err := w.selected(policy.Namespace, d, peer)
			if err != nil {
				return err
			}
			allow(selected, policyAllow)
		}
	}
	return nil
}

// block is the target for packets of a block. Its excepted parts have a chain of their own.
func (w *policyWriter) block(d policySide, block *networkingv1.IPBlock) string {
	if len(block.Except) == 0 {
		return policyAllow
	}
	name := policyPrefix + chainHash("block "+d.peer+block.CIDR+" "+strings.Join(block.Except, " "))
	if w.chain(name) {
		for _, except := range block.Except {
			w.rule(name, "%s %s -j RETURN", d.peer, except)
		}
		w.rule(name, "-j %s", policyAllow)
	}
	return name
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
	for _, pod := range w.pods {
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

// selected are matches of the pods that a peer chooses, by their addresses.
func (w *policyWriter) selected(namespace string, d policySide, peer networkingv1.NetworkPolicyPeer) (all []string, err error) {
	pods, err := selector(peer.PodSelector)
	if err != nil {
		return nil, err
	}
	namespaces, err := selector(peer.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	for _, pod := range w.pods {
		in := pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			of := w.namespaces[pod.Namespace]
			in = of != nil && namespaces.Matches(labels.Set(of.Labels))
		}
		if a := addressOf4(pod); in && a != "" && pods.Matches(labels.Set(pod.Labels)) {
			all = append(all, d.peer+" "+a+" ")
		}
	}
	return all, nil
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
