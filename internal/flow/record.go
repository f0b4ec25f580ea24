package flow

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Record is an event with names. It is immutable.
type Record struct {
	Event
	From, To End
	// EgressPolicy and IngressPolicy allowed it; empty if none applied.
	EgressPolicy, IngressPolicy string
	// Device is the pod of the device; nil if it is not a pod's.
	Device *Owner
}

// End is one end of a flow.
type End struct {
	// Owner has the address; nil if it is external.
	Owner *Owner
	// Services have the address and port as an endpoint.
	Services []cluster.Key
}

// Flow gives the record in the form of the API.
func (r *Record) Flow() agentapi.Flow {
	f := agentapi.Flow{
		Time: r.Time, Event: r.Kind.String(), Verdict: r.Kind.Verdict(), Protocol: protocolText(r.Protocol),
		Source:       r.From.flow(r.Source, r.SourceIdentity),
		Destination:  r.To.flow(r.Destination, r.DestinationIdentity),
		EgressPolicy: r.EgressPolicy, IngressPolicy: r.IngressPolicy,
		Reason: r.Reason, Meaning: r.Meaning, Program: r.Program, Device: r.Event.Device, TCPFlags: flagNames(r.TCPFlags),
		Evicted: r.Evicted, First: r.First, Created: r.Created,
		Packets: r.Packets[0], Bytes: r.Bytes[0], ReplyPackets: r.Packets[1], ReplyBytes: r.Bytes[1],
	}
	if r.Device != nil {
		f.DevicePod = r.Device.String()
	}
	return f
}

func (e End) flow(at netip.AddrPort, identity policy.Identity) agentapi.FlowEnd {
	out := agentapi.FlowEnd{Address: at.Addr(), Port: at.Port(), Identity: uint32(identity)}
	if e.Owner != nil {
		out.Kind, out.Namespace, out.Name, out.Node = e.Owner.Kind, e.Owner.Namespace, e.Owner.Name, e.Owner.Node
	}
	for _, s := range e.Services {
		out.Services = append(out.Services, s.String())
	}
	return out
}

// protocolText names an IP protocol; empty for 0, a packet that was not parsed.
func protocolText(number uint8) string {
	if number == 0 {
		return ""
	}
	return cluster.Protocol(number).String()
}

// flagNames are the names of TCP's flags (RFC 9293, 3.1), lowest bit first.
func flagNames(flags uint8) (all []string) {
	for i, name := range [...]string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"} {
		if flags&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return all
}
