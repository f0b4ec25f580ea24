package flow

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// Filter chooses among records. The zero Filter chooses all.
type Filter struct {
	pod, from, to *endFilter
	verdict       string
	protocol      uint8
	port          uint16
	reason        string
	since         time.Time
}

// NewFilter reads a filter. reasons are all drop reasons. The error names the invalid part.
func NewFilter(f agentapi.FlowFilter, reasons []string) (Filter, error) {
	out := Filter{verdict: f.Verdict, port: f.Port, reason: f.Reason, since: f.Since}
	if f.Verdict != "" && !slices.Contains(agentapi.FlowVerdicts, f.Verdict) {
		return Filter{}, fmt.Errorf("verdict %q is none of %s", f.Verdict, strings.Join(agentapi.FlowVerdicts, ", "))
	}
	if f.Reason != "" && !slices.Contains(reasons, f.Reason) {
		return Filter{}, fmt.Errorf("reason %q is none of %s", f.Reason, strings.Join(reasons, ", "))
	}
	if f.Last < 0 {
		return Filter{}, fmt.Errorf("last %d is negative", f.Last)
	}
	var err error
	if out.protocol, err = protocolNumber(f.Protocol); err != nil {
		return Filter{}, err
	}
	for _, end := range []struct {
		name, text string
		into       **endFilter
	}{{"pod", f.Pod, &out.pod}, {"from", f.From, &out.from}, {"to", f.To, &out.to}} {
		if end.text == "" {
			continue
		}
		if *end.into = newEndFilter(end.text); *end.into == nil {
			return Filter{}, fmt.Errorf("%s %q is neither NAMESPACE/NAME, NAMESPACE/, a name alone, an address nor a prefix", end.name, end.text)
		}
	}
	return out, nil
}

// protocolNumber reads the name of a protocol or its number; empty is 0.
func protocolNumber(text string) (uint8, error) {
	if text == "" {
		return 0, nil
	}
	if p, ok := cluster.ParseProtocol(text); ok {
		return uint8(p), nil
	}
	number, err := strconv.ParseUint(text, 10, 8)
	if err != nil || number == 0 {
		return 0, fmt.Errorf("protocol %q is neither TCP, UDP, SCTP, ICMP, ICMPv6 nor a number from 1 to 255", text)
	}
	return uint8(number), nil
}

// Chooses reports whether a record matches.
func (f *Filter) Chooses(r *Record) bool {
	return (f.verdict == "" || f.verdict == r.Kind.Verdict()) &&
		(f.protocol == 0 || f.protocol == r.Protocol) &&
		(f.port == 0 || f.port == r.Destination.Port()) &&
		(f.reason == "" || f.reason == r.Reason) &&
		!r.Time.Before(f.since) &&
		(f.from == nil || f.from.chooses(r.Source.Addr(), r.From) || f.from.chooses(netip.Addr{}, End{Owner: r.sender()})) &&
		(f.to == nil || f.to.chooses(r.Destination.Addr(), r.To)) &&
		(f.pod == nil || f.pod.chooses(r.Source.Addr(), r.From) || f.pod.chooses(r.Destination.Addr(), r.To) ||
			f.pod.chooses(netip.Addr{}, End{Owner: r.Device}))
}

// sender is the pod whose device a dropped packet came from, whatever its source address.
func (r *Record) sender() *Owner {
	if r.Kind == KindDropped && r.Program == fromPod {
		return r.Device
	}
	return nil
}

// fromPod is the program for packets from pods.
const fromPod = "from_pod"

// endFilter selects ends by prefix or by name.
type endFilter struct {
	prefix netip.Prefix // invalid for a filter by name
	// anyNamespace and anyName match any part of the name.
	key                   cluster.Key
	anyNamespace, anyName bool
}

// newEndFilter reads an end filter; nil if the text is invalid.
func newEndFilter(text string) *endFilter {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		return &endFilter{prefix: netip.PrefixFrom(a, a.BitLen())}
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return &endFilter{prefix: p.Masked()}
	}
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		return &endFilter{key: cluster.Key{Name: text}, anyNamespace: true}
	}
	if _, err := netip.ParseAddr(namespace); err == nil || namespace == "" || strings.Contains(name, "/") {
		return nil
	}
	return &endFilter{key: cluster.Key{Namespace: namespace, Name: name}, anyName: name == ""}
}

func (f *endFilter) chooses(a netip.Addr, e End) bool {
	if f.prefix.IsValid() {
		return f.prefix.Contains(a)
	}
	return e.Owner != nil && f.names(e.Owner.Key) || slices.ContainsFunc(e.Services, f.names)
}

func (f *endFilter) names(k cluster.Key) bool {
	return (f.anyNamespace || f.key.Namespace == k.Namespace) && (f.anyName || f.key.Name == k.Name)
}
