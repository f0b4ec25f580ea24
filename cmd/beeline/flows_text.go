package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// flowTime is how the time of a flow is printed, in UTC.
const flowTime = "15:04:05.000"

// flowRow is a flow in columns.
func flowRow(f agentapi.Flow) []string {
	packets := fmt.Sprint(f.Packets)
	if f.ReplyPackets > 0 || f.Event == agentapi.FlowEventClosed || f.Event == agentapi.FlowEventRevoked {
		packets += fmt.Sprintf("/%d", f.ReplyPackets)
	}
	if f.Evicted {
		packets = "≥" + packets
	}
	return []string{
		f.Time.UTC().Format(flowTime), flowSource(f), "→", flowEnd(f.Destination, f.Protocol), dash(f.Protocol), f.Event, packets, flowWhy(f),
	}
}

// Widths of the columns of a stream, whose rows are not known in advance.
const (
	flowEndWidth   = 32
	flowEventWidth = 7
)

// flowLine formats a flow as a line of a stream.
func flowLine(f agentapi.Flow) string {
	row := flowRow(f)
	return fmt.Sprintf("%s  %-*s → %-*s  %-6s  %-*s  %6s  %s", row[0], flowEndWidth, row[1], flowEndWidth, row[3], row[4], flowEventWidth, row[5], row[6], row[7])
}

// flowSource names the initiator or sender. A pod with a spoofed source address is named by its device.
func flowSource(f agentapi.Flow) string {
	end := flowEnd(f.Source, f.Protocol)
	switch {
	case f.Event != agentapi.FlowEventDropped || f.Program != "from_pod" || f.DevicePod == "" || f.DevicePod == f.Source.Namespace+"/"+f.Source.Name:
		return end
	case !f.Source.Address.IsValid():
		return f.DevicePod
	}
	return f.DevicePod + " as " + end
}

// flowEnd names an end with its port, and the Services that it is a backend of.
func flowEnd(e agentapi.FlowEnd, protocol string) string {
	if !e.Address.IsValid() {
		return "?"
	}
	name := e.Address.String()
	switch e.Kind {
	case agentapi.FlowEndPod:
		name = e.Namespace + "/" + e.Name
	case agentapi.FlowEndService:
		name = "Service " + e.Namespace + "/" + e.Name
	case agentapi.FlowEndNode:
		name = "node " + e.Name
	}
	if e.Port != 0 && !strings.HasPrefix(protocol, "ICMP") {
		if e.Kind == "" {
			name = netip.AddrPortFrom(e.Address, e.Port).String()
		} else {
			name = fmt.Sprintf("%s:%d", name, e.Port)
		}
	}
	if len(e.Services) > 0 {
		name += " (Service " + strings.Join(e.Services, ", ") + ")"
	}
	return name
}

// flowOfNode reports a flow between a pod and its own node, which no policy can deny.
func flowOfNode(f agentapi.Flow) bool {
	s, d := f.Source, f.Destination
	return s.Node == d.Node && (s.Kind == agentapi.FlowEndNode && d.Kind == agentapi.FlowEndPod || s.Kind == agentapi.FlowEndPod && d.Kind == agentapi.FlowEndNode)
}

// flowWhy names the policies that allowed a flow, or the reason of a drop.
func flowWhy(f agentapi.Flow) string {
	if f.Reason != "" {
		return fmt.Sprintf("%s in %s: %s", f.Reason, f.Program, f.Meaning)
	}
	if f.Event == agentapi.FlowEventRevoked {
		return "no NetworkPolicy allows it any more: see `beeline policy explain`"
	}
	var by []string
	if f.EgressPolicy != "" {
		by = append(by, f.EgressPolicy+" (egress)")
	}
	if f.IngressPolicy != "" {
		by = append(by, f.IngressPolicy+" (ingress)")
	}
	why := "-"
	switch {
	case len(by) > 0:
		why = "allowed by " + strings.Join(by, " and ")
	case flowOfNode(f):
		why = "the pod's own node"
	}
	if f.Evicted {
		why += "; evicted from the full conntrack table, so its end is unknown"
	}
	return why
}
