/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transport headers and struct transport, shared by tc and XDP. */
#pragma once

#include "lib/net/address.h"
#include "lib/net/packet.h"

/* TCP flags (RFC 9293, 3.1). */
enum transport_flag {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

/* Chunk types that set up or shut down an association (RFC 9260, 3.2). */
enum sctp_chunk {
	SCTP_INIT = 1,
	SCTP_INIT_ACK = 2,
	SCTP_ABORT = 6,
	SCTP_SHUTDOWN = 7,
	SCTP_SHUTDOWN_ACK = 8,
	SCTP_SHUTDOWN_COMPLETE = 14,
};

/* Echo types (RFC 792; RFC 4443, 4.1). */
enum icmp_echo {
	ICMP_ECHO_REPLY = 0,
	ICMP_ECHO_REQUEST = 8,
	ICMPV6_ECHO_REQUEST = 128,
	ICMPV6_ECHO_REPLY = 129,
};

/*
 * The start of a TCP, UDP, SCTP, ICMP or ICMPv6 header. The last four bytes exist in TCP, and in SCTP as its first
 * chunk.
 */
struct transport_header {
	union {
		struct {
			__be16 source, destination;
		};
		struct {
			__u8 type, code;
			__sum16 check;
		};
	};
	union {
		__be32 sequence;
		struct {
			__be16 identifier; /* of ICMP echo */
			__be16 number;
		};
	};
	__be32 acknowledgment;
	union {
		__u8 words; /* TCP data offset in 32-bit words, upper half */
		__u8 chunk; /* type of the first SCTP chunk */
	};
	__u8 flags; /* enum transport_flag */
	__be16 window;
};
_Static_assert(sizeof(struct transport_header) == 16, "transport_header is the wire format");

/* Bytes that TCP, and SCTP with a chunk, must have; bytes that the others must have. */
#define TRANSPORT_TCP_LENGTH 16
#define TRANSPORT_OTHER_LENGTH 8

/* Length of a TCP header without options (RFC 9293, 3.1). */
#define TRANSPORT_TCP_WHOLE 20

/* What NAT and policies can read of a packet. */
enum transport_kind {
	TRANSPORT_OTHER = 0,	/* no ports: another protocol, or truncated */
	TRANSPORT_PORTS = 1,	/* TCP, UDP, SCTP or ICMP echo */
	TRANSPORT_ERROR = 2,	/* an ICMP message that may quote a translated packet */
	TRANSPORT_FRAGMENT = 3, /* a later fragment: no transport header */
	/*
	 * A fragment that could hide its transport header: a first fragment without all of it (RFC 8200, 4.5; RFC
	 * 7112), a later one that overlaps it (RFC 1858, 3.2.2; RFC 3128), or a second first fragment
	 * (fragment_store).
	 */
	TRANSPORT_BROKEN = 4,
	TRANSPORT_UNREADABLE = 5, /* too many or truncated IPv6 extension headers */
};

/* Whether a packet is a fragment. */
enum transport_pieces {
	TRANSPORT_WHOLE = 0,
	TRANSPORT_MORE = 1, /* more fragments follow */
	TRANSPORT_LAST = 2, /* last fragment */
};

struct transport {
	struct tuple tuple; /* ports are valid with TRANSPORT_PORTS only; see transport_set_echo */
	__u32 offset;	    /* of the transport header, from the start of the frame */
	__u32 end;	    /* of the IP packet, from the start of the frame; nothing behind it is read */
	__u32 fragment;	    /* IP identification in network order (IPv4: 16 bits), if in_fragments */
	__u8 kind;	    /* enum transport_kind */
	__u8 flags;	    /* enum transport_flag; for SCTP its equivalent; else 0 */
	__u8 in_fragments;  /* enum transport_pieces; TRANSPORT_PORTS with a value above 0 is the first fragment */
	__u8 reply;	    /* not 0: an echo reply, which starts no connection */
};
_Static_assert(sizeof(struct transport) == 56, "transport has no hidden padding");

/* Whether a protocol has ports. ICMP echo counts separately. */
static __always_inline bool transport_has_ports(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP;
}

/* Whether packets of a protocol show when a connection starts and ends. */
static __always_inline bool transport_has_flags(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_SCTP;
}

/* Whether the packet is a SYN without ACK, or an INIT of SCTP. */
static __always_inline bool transport_is_syn(const struct transport *t)
{
	return (t->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/*
 * The TCP flags that correspond to an SCTP chunk. Only the first chunk counts. INIT, INIT ACK and SHUTDOWN
 * COMPLETE are always alone (RFC 9260, 6.10). A SHUTDOWN or ABORT behind another chunk goes unnoticed, and the
 * entry expires by timeout.
 */
static __always_inline __u8 transport_flags_of_chunk(__u8 chunk)
{
	switch (chunk) {
	case SCTP_INIT:
		return TCP_SYN;
	case SCTP_INIT_ACK:
		return TCP_SYN | TCP_ACK;
	case SCTP_ABORT:
		return TCP_RST;
	case SCTP_SHUTDOWN:
	case SCTP_SHUTDOWN_ACK:
	case SCTP_SHUTDOWN_COMPLETE:
		return TCP_FIN;
	}
	return 0;
}

static __always_inline bool transport_is_icmp(__u8 protocol)
{
	return protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6;
}

/* Fills the tuple of a lookup in the kernel. Returns its size, which tells the kernel the family. */
static __always_inline __u32 transport_lookup_tuple(struct bpf_sock_tuple *to, bool ipv4, const struct address *source,
						    __be16 source_port, const struct address *destination,
						    __be16 destination_port)
{
	if (ipv4) {
		to->ipv4.saddr = source->word[3];
		to->ipv4.daddr = destination->word[3];
		to->ipv4.sport = source_port;
		to->ipv4.dport = destination_port;
		return sizeof(to->ipv4);
	}
	__builtin_memcpy(to->ipv6.saddr, source, sizeof(to->ipv6.saddr));
	__builtin_memcpy(to->ipv6.daddr, destination, sizeof(to->ipv6.daddr));
	to->ipv6.sport = source_port;
	to->ipv6.dport = destination_port;
	return sizeof(to->ipv6);
}

/*
 * ICMP echo has an identifier instead of ports: it is the requester's port, and the responder's port is 0. Two
 * hosts that ping each other with the same identifier so have two connections.
 */
static __always_inline void transport_set_echo(struct tuple *t, __be16 identifier, bool reply)
{
	t->source_port = reply ? 0 : identifier;
	t->destination_port = reply ? identifier : 0;
}

/* The echo identifier of an entry, one of whose ports is 0. */
static __always_inline __be16 transport_echo_identifier(const struct nat_entry *to)
{
	return to->source_port | to->destination_port;
}

/* Sets what follows from the transport header. The addresses and the protocol of the tuple are set already. */
static __always_inline void transport_set(struct transport *t, const struct transport_header *h)
{
	t->flags = 0;
	t->reply = 0;
	t->kind = TRANSPORT_PORTS;
	t->tuple.source_port = h->source;
	t->tuple.destination_port = h->destination;
	if (t->tuple.protocol == PROTOCOL_TCP) {
		t->flags = h->flags;
		return;
	}
	if (t->tuple.protocol == PROTOCOL_UDP)
		return;
	if (t->tuple.protocol == PROTOCOL_SCTP) {
		t->flags = transport_flags_of_chunk(h->chunk);
		return;
	}
	if (t->tuple.protocol == PROTOCOL_ICMP) {
		t->reply = h->type == ICMP_ECHO_REPLY;
		if (!t->reply && h->type != ICMP_ECHO_REQUEST)
			t->kind = TRANSPORT_ERROR;
	} else {
		t->reply = h->type == ICMPV6_ECHO_REPLY;
		if (!t->reply && h->type != ICMPV6_ECHO_REQUEST)
			t->kind = TRANSPORT_ERROR;
	}
	transport_set_echo(&t->tuple, h->identifier, t->reply);
}

/* A TCP header without options (RFC 9293, 3.1). */
struct tcp_header {
	__be16 source, destination;
	__be32 sequence, acknowledgement;
	__u8 data_offset; /* in 32-bit words, upper half */
	__u8 flags;
	__be16 window;
	__sum16 check;
	__be16 urgent;
};
_Static_assert(sizeof(struct tcp_header) == 20, "a TCP header without options has 20 bytes");

struct udp_header {
	__be16 source, destination;
	__be16 length;
	__sum16 check;
};

/* Ports of TCP, UDP and SCTP. */
struct ports {
	__be16 source, destination;
};
