/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transport headers, struct transport, and what tc and XDP both derive from them. */
#pragma once

#include "lib/net/address.h"
#include "lib/net/packet.h"

/* Flags of TCP (RFC 9293, 3.1). */
enum transport_flag {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

/* Types of the chunks of SCTP that open an association or end it (RFC 9260, 3.2). */
enum sctp_chunk {
	SCTP_INIT = 1,
	SCTP_INIT_ACK = 2,
	SCTP_ABORT = 6,
	SCTP_SHUTDOWN = 7,
	SCTP_SHUTDOWN_ACK = 8,
	SCTP_SHUTDOWN_COMPLETE = 14,
};

/* Types of echo messages (RFC 792; RFC 4443, 4.1). */
enum icmp_echo {
	ICMP_ECHO_REPLY = 0,
	ICMP_ECHO_REQUEST = 8,
	ICMPV6_ECHO_REQUEST = 128,
	ICMPV6_ECHO_REPLY = 129,
};

/* The first bytes of a TCP, UDP, SCTP, ICMP or ICMPv6 header; the last four are TCP's alone, and SCTP's first chunk. */
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
			__be16 identifier; /* ICMP echo */
			__be16 number;
		};
	};
	__be32 acknowledgment;
	union {
		__u8 words; /* length of TCP's header, in the upper half */
		__u8 chunk; /* type of SCTP's first chunk */
	};
	__u8 flags; /* enum transport_flag */
	__be16 window;
};
_Static_assert(sizeof(struct transport_header) == 16, "transport_header is what is on the wire");

/* How much of it TCP has, and SCTP with a chunk; and the others at least. */
#define TRANSPORT_TCP_LENGTH 16
#define TRANSPORT_OTHER_LENGTH 8

/* How long a TCP header is without options (RFC 9293, 3.1). */
#define TRANSPORT_TCP_WHOLE 20

/* What translation can do with a packet. */
enum transport_kind {
	TRANSPORT_OTHER = 0,	/* has no ports: another protocol, or cut off */
	TRANSPORT_PORTS = 1,	/* TCP, UDP, SCTP or ICMP echo */
	TRANSPORT_ERROR = 2,	/* an ICMP message that may be about a translated packet, which it quotes */
	TRANSPORT_FRAGMENT = 3, /* a later fragment: no transport header */
	/*
	 * A fragment that would have a packet judged by what it is not: a first one that does not hold the whole transport header (RFC 8200, 4.5;
	 * RFC 7112), a later one that lies over it (RFC 1858, 3.2.2; RFC 3128), a second first one (fragment_store).
	 */
	TRANSPORT_BROKEN = 4,
	TRANSPORT_UNREADABLE = 5, /* behind more extension headers of IPv6 than are read, or cut off within them */
};

/* Whether a packet is a fragment, and what follows. */
enum transport_pieces {
	TRANSPORT_WHOLE = 0,
	TRANSPORT_MORE = 1, /* a fragment that others follow */
	TRANSPORT_LAST = 2, /* the last one */
};

struct transport {
	struct tuple tuple; /* ports are valid with TRANSPORT_PORTS only; see transport_set_echo */
	__u32 offset;	    /* of the transport header, from the beginning of the frame */
	__u32 end;	    /* of the IP packet, likewise: nothing behind it is read */
	__u32 fragment;	    /* the IP identification (IPv4: 16 bits), both as on the wire, if in_pieces */
	__u8 kind;	    /* enum transport_kind */
	__u8 flags;	    /* enum transport_flag, for SCTP what is like them; 0 for other protocols */
	__u8 in_fragments;  /* enum transport_pieces; if not 0, with TRANSPORT_PORTS the first fragment */
	__u8 reply;	    /* not 0: an echo reply, which begins no connection */
};
_Static_assert(sizeof(struct transport) == 56, "transport has no hidden padding");

/* Whether a protocol has ports as translation knows them. ICMP is told apart by its type. */
static __always_inline bool transport_has_ports(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP;
}

/* Whether its packets tell that a connection begins or ends. */
static __always_inline bool transport_has_flags(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_SCTP;
}

/*
 * What TCP's flags would be. Of the chunks of a packet the first one counts: INIT, INIT ACK and SHUTDOWN COMPLETE are alone in
 * theirs (RFC 9260, 6.10); a SHUTDOWN or ABORT behind another chunk is not noticed, and its association is forgotten later.
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

/* Whether this is the protocol of echo messages. */
static __always_inline bool transport_is_icmp(__u8 protocol)
{
	return protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6;
}

/*
 * The identifier of an echo is the port of who asks; who answers has 0. So two hosts that ask each other with the same
 * identifier have two connections, unless that is 0.
 */
static __always_inline void transport_set_echo(struct tuple *t, __be16 identifier, bool reply)
{
	t->source_port = reply ? 0 : identifier;
	t->destination_port = reply ? identifier : 0;
}

/* The identifier of an echo that gets these ports, of which one is 0. */
static __always_inline __be16 transport_echo_identifier(const struct nat_entry *to)
{
	return to->source_port | to->destination_port;
}

/* Sets everything in *t that follows from the transport header. tuple.protocol is set already, and so are the addresses. */
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

/* The ports of TCP, UDP and SCTP, at the same place. */
struct ports {
	__be16 source, destination;
};
