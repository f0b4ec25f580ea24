package cluster

import corev1 "k8s.io/api/core/v1"

// Protocol is a transport protocol by its number in the IP header (IANA).
type Protocol uint8

// The protocols that Kubernetes has.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String gives the name that Kubernetes uses.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return string(corev1.ProtocolTCP)
	case UDP:
		return string(corev1.ProtocolUDP)
	case SCTP:
		return string(corev1.ProtocolSCTP)
	}
	return "unknown"
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
