package cluster

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Protocol is a protocol by its number in the IP header (IANA, "Protocol Numbers").
type Protocol uint8

// The protocols of Kubernetes, and ICMP, to which policies without ports apply as well.
const (
	ICMP   Protocol = 1
	TCP    Protocol = 6
	UDP    Protocol = 17
	ICMPv6 Protocol = 58
	SCTP   Protocol = 132
)

var protocolNames = map[Protocol]string{
	ICMP: "ICMP", TCP: string(corev1.ProtocolTCP), UDP: string(corev1.ProtocolUDP), ICMPv6: "ICMPv6", SCTP: string(corev1.ProtocolSCTP),
}

// String gives the name as in Kubernetes, or the number for a protocol without a name here. All are distinct.
func (p Protocol) String() string {
	if name, ok := protocolNames[p]; ok {
		return name
	}
	return strconv.Itoa(int(p))
}

// ParseProtocol gives the protocol of a name, in either case. ok is false if there is none.
func ParseProtocol(name string) (p Protocol, ok bool) {
	for p, known := range protocolNames {
		if strings.EqualFold(known, name) {
			return p, true
		}
	}
	return 0, false
}

// protocol reads a protocol; empty is TCP.
func (c *checks) protocol(field string, p corev1.Protocol) Protocol {
	switch p {
	case corev1.ProtocolTCP, "":
		return TCP
	case corev1.ProtocolUDP:
		return UDP
	case corev1.ProtocolSCTP:
		return SCTP
	}
	c.fail(field, "%q is none of TCP, UDP and SCTP", p)
	return 0
}
