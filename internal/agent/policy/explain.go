package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// Explain says whether policies allow a connection, by the snapshot of this agent.
func (p *Policies) Explain(q agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	snapshot, local := p.newest()
	if snapshot == nil || !known(snapshot) {
		return nil, agentapi.Errorf(agentapi.CodeNotReady, "node %s has not synced the cluster's NetworkPolicies yet", p.options.Node)
	}
	x := explainer{options: p.options, snapshot: local.View(snapshot, p.options.Node), reported: snapshot, closed: p.current().closed}
	answer, err := x.answer(q)
	var refused *agentapi.Error
	if err != nil && !errors.As(err, &refused) {
		err = agentapi.Errorf(agentapi.CodeInvalid, "%v", err)
	}
	return answer, err
}

// explainer answers questions about one snapshot.
type explainer struct {
	options  Options
	snapshot *cluster.Snapshot
	// reported is the snapshot without what this node adds about itself.
	reported *cluster.Snapshot
	// closed says why pods of this node are isolated in a direction.
	closed map[closedPod]string
}

func (x explainer) answer(q agentapi.PolicyQuestion) (*agentapi.PolicyAnswer, error) {
	protocol, err := protocolNamed(q.Protocol)
	if err != nil {
		return nil, err
	}
	if q.From == agentapi.PolicyNode && q.To == agentapi.PolicyNode {
		return nil, errors.New("both ends are the node: no policy is about that")
	}
	from, err := x.end(q.From)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	paths, err := x.destinations(from, q, protocol)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	answer := &agentapi.PolicyAnswer{Allowed: true}
	for _, to := range paths {
		if to.again && decided(answer.Paths[len(answer.Paths)-1]) {
			continue
		}
		path, err := x.path(from, to, protocol)
		if err != nil {
			return nil, err
		}
		if to.again && path.Allowed {
			continue // same as the path before
		}
		path.From, path.To, path.Service, path.Unused = x.describe(from, q.From), x.describe(to.end, q.To), to.service, to.unused
		if to.port != 0 {
			path.To += fmt.Sprintf(" port %d/%s", to.port, q.Protocol)
		}
		answer.Paths = append(answer.Paths, path)
		answer.Allowed = answer.Allowed && (path.Allowed || path.Unused)
	}
	return answer, nil
}

// decided reports whether another path to the same backend, which differs only in the source that the backend sees,
// has the same result. There is a path through every node, so they are not all evaluated where no policy applies.
func decided(path agentapi.PolicyPath) bool {
	return !path.Allowed || len(path.Ingress.Policies) == 0
}

// path evaluates one connection: the policies of each end, by what they see of the other one.
func (x explainer) path(from evaluate.Endpoint, to destination, protocol cluster.Protocol) (agentapi.PolicyPath, error) {
	sent := evaluate.Traffic{Source: from, Destination: to.end, Protocol: protocol, Port: to.port}
	arrives := sent
	var path agentapi.PolicyPath
	if to.sentTo.IsValid() {
		sent.Destination, sent.Port = evaluate.Endpoint{Address: to.sentTo.Addr()}, to.sentTo.Port()
		path.SentTo = to.sentTo.String()
	}
	if to.seen != (evaluate.Endpoint{}) {
		arrives.Source = to.seen
		path.SeenAs = to.seen.Address.String()
	}
	before, behind := evaluate.Evaluate(x.snapshot, sent), evaluate.Evaluate(x.snapshot, arrives)
	if err := cmp.Or(before.Err, behind.Err); err != nil {
		return agentapi.PolicyPath{}, err
	}
	path.Egress, path.Ingress = x.decision(before.Egress), x.decision(behind.Ingress)
	path.Allowed = path.Egress.Allowed && path.Ingress.Allowed
	return path, nil
}

// decision words the decision of one end's policies. Invalid policies deny what they may be about.
func (x explainer) decision(j evaluate.Decision) agentapi.PolicyDecision {
	out := agentapi.PolicyDecision{Allowed: j.Allowed, Reason: string(j.Reason), Policies: texts(j.Isolating), Rules: texts(j.Rules), Near: texts(j.Near)}
	if j.Pod != (cluster.Key{}) {
		out.Pod = j.Pod.String()
	}
	if slices.Contains([]evaluate.Reason{evaluate.ReasonNoPod, evaluate.ReasonItself, evaluate.ReasonNode}, j.Reason) {
		return out
	}
	why, closed := x.closed[closedPod{j.Pod, j.Direction == evaluate.Ingress}]
	closed = closed && j.Node == x.options.Node // and not another pod of that name, on another node
	if len(j.Invalid) > 0 {
		why, closed = fmt.Sprintf("NetworkPolicy %s is not understood: %s", j.Invalid[0], policyOf(x.snapshot, j.Invalid[0]).Invalid), true
	}
	if closed {
		out.Allowed, out.Reason, out.Rules, out.Near = false, "closed: "+why, nil, nil
	}
	return out
}

// destination is where a connection may go.
type destination struct {
	end  evaluate.Endpoint
	port uint16
	// service is the Service whose backend it is; empty for other destinations.
	service string
	// sentTo is what the sender's policies see as the destination, if that is not end.
	sentTo netip.AddrPort
	// seen is what the receiver's policies see as the source, if that is not the sender.
	seen evaluate.Endpoint
	// unused says that the Service sends no connection of the sender to the backend.
	unused bool
	// again says that the previous destination is the same one by another path.
	again bool
}

// destinations resolves where connections go: to one destination, or to each backend of a Service.
func (x explainer) destinations(from evaluate.Endpoint, q agentapi.PolicyQuestion, protocol cluster.Protocol) ([]destination, error) {
	withoutPorts := !slices.Contains(agentapi.Protocols, q.Protocol)
	if (q.Port == "") != withoutPorts {
		if withoutPorts {
			return nil, fmt.Errorf("%s has no ports", q.Protocol)
		}
		return nil, fmt.Errorf("a port is needed, as in %s", net.JoinHostPort(q.To, "80"))
	}
	if s := x.serviceOf(q.To, q.Port, protocol); s != nil && !withoutPorts {
		return x.backends(from, s, q)
	}
	end, err := x.end(q.To)
	if err != nil {
		return nil, err
	}
	if withoutPorts {
		return []destination{{end: end}}, nil
	}
	if number, err := strconv.ParseUint(q.Port, 10, 16); err == nil && number > 0 {
		return []destination{{end: end, port: uint16(number)}}, nil
	} else if err == nil || errors.Is(err, strconv.ErrRange) {
		return nil, fmt.Errorf("port %s is not from 1 to 65535", q.Port)
	}
	if pod := podOf(x.snapshot, end.Pod); pod != nil {
		for _, port := range pod.Ports {
			if port.Name == q.Port && port.Protocol == protocol {
				return []destination{{end: end, port: port.Number}}, nil
			}
		}
	}
	return nil, agentapi.Errorf(agentapi.CodeNotFound, "%s has no port %q of protocol %s", q.To, q.Port, q.Protocol)
}

// end resolves an end.
func (x explainer) end(text string) (evaluate.Endpoint, error) {
	if text == agentapi.PolicyNode {
		return evaluate.Endpoint{Node: true}, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return evaluate.Endpoint{Address: addr.WithZone("").Unmap()}, nil
	}
	if _, err := netip.ParsePrefix(text); err == nil {
		return evaluate.Endpoint{}, fmt.Errorf("%q is a prefix, and one address is needed", text)
	}
	key, ok := keyNamed(text)
	if !ok {
		return evaluate.Endpoint{}, fmt.Errorf("%q is neither NAMESPACE/POD nor an address nor %s", text, agentapi.PolicyNode)
	}
	if podOf(x.snapshot, key) == nil {
		return evaluate.Endpoint{}, agentapi.Errorf(agentapi.CodeNotFound, "there is no pod %s", key)
	}
	return evaluate.Endpoint{Pod: key}, nil
}

// describe names an end for people: for an address of a pod, the pod.
func (x explainer) describe(e evaluate.Endpoint, requested string) string {
	if e.Node || e.Pod != (cluster.Key{}) {
		return requested
	}
	for p := range x.snapshot.Pods.All() {
		if slices.Contains(p.Addresses, e.Address) && !p.Ended && !p.HostNetwork {
			return p.Key().String() + " (" + e.Address.String() + ")"
		}
	}
	return e.Address.String()
}

func podOf(s *cluster.Snapshot, key cluster.Key) *cluster.Pod {
	pod, _ := s.Pods.Find(key)
	return pod
}

// policyOf gives a policy; an empty one if it is gone.
func policyOf(s *cluster.Snapshot, key cluster.Key) *cluster.NetworkPolicy {
	if p, found := cluster.ListOf(s.NetworkPolicies...).Find(key); found {
		return p
	}
	return &cluster.NetworkPolicy{}
}

// keyNamed parses NAMESPACE/NAME.
func keyNamed(text string) (cluster.Key, bool) {
	namespace, name, ok := strings.Cut(text, "/")
	return cluster.Key{Namespace: namespace, Name: name}, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// protocolNamed gives the protocol with a name.
func protocolNamed(name string) (cluster.Protocol, error) {
	if p, ok := cluster.ParseProtocol(name); ok && (name == agentapi.ProtocolICMP || slices.Contains(agentapi.Protocols, name)) {
		return p, nil
	}
	return 0, fmt.Errorf("protocol %q is none of %s and %s", name, strings.Join(agentapi.Protocols, ", "), agentapi.ProtocolICMP)
}

func texts[T fmt.Stringer](all []T) (out []string) {
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}
