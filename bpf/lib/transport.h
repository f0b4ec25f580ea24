/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What lies behind the IP header, as far as translation has to know it: ports, the identifier of ICMP echo, TCP's flags,
 * and whether the packet is a piece of a larger one. transport_take knows no packet, so XDP uses it as well; what
 * is above it is filled by whoever parsed the IP header.
 */
#pragma once

#include "address.h"
#include "packet.h"

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
	TRANSPORT_OTHER = 0, /* has no ports: another protocol, or cut off */
	TRANSPORT_PORTS = 1, /* TCP, UDP, SCTP or ICMP echo */
	TRANSPORT_ERROR = 2, /* an ICMP message that may be about a translated packet, which it quotes */
	TRANSPORT_PIECE = 3, /* a later fragment: no transport header */
	/*
	 * A fragment that would have a packet judged by what it is not: a first one that does not hold the whole transport header (RFC 8200, 4.5;
	 * RFC 7112), a later one that lies over it (RFC 1858, 3.2.2; RFC 3128), a second first one (fragment_remember).
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
	struct tuple tuple; /* ports are valid with TRANSPORT_PORTS only; see transport_take_echo */
	__u32 offset;	    /* of the transport header, from the beginning of the frame */
	__u32 end;	    /* of the IP packet, likewise: nothing behind it is read */
	__u32 fragment;	    /* the IP identification (IPv4: 16 bits), both as on the wire, if in_pieces */
	__u8 kind;	    /* enum transport_kind */
	__u8 flags;	    /* enum transport_flag, for SCTP what is like them; 0 for other protocols */
	__u8 in_pieces;	    /* enum transport_pieces; if not 0, with TRANSPORT_PORTS the first fragment */
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
static __always_inline void transport_take_echo(struct tuple *t, __be16 identifier, bool reply)
{
	t->source_port = reply ? 0 : identifier;
	t->destination_port = reply ? identifier : 0;
}

/* The identifier of an echo that gets these ports, of which one is 0. */
static __always_inline __be16 transport_echo_identifier(const struct connection *to)
{
	return to->source_port | to->destination_port;
}

/* Sets everything in *t that follows from the transport header. tuple.protocol is set already, and so are the addresses. */
static __always_inline void transport_take(struct transport *t, const struct transport_header *h)
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
	transport_take_echo(&t->tuple, h->identifier, t->reply);
}

/* Extension headers of IPv6 that may come before the transport header (RFC 8200, 4.1), and how many are looked at. */
enum ipv6_extension {
	IPV6_HOP_BY_HOP = 0,
	IPV6_ROUTING = 43,
	IPV6_FRAGMENT = 44,
	IPV6_DESTINATION = 60,
};

#define IPV6_EXTENSIONS_MAX 4

/* An extension header; `field` and `identification` are the fragment header's (RFC 8200, 4.5). */
struct extension_header {
	__u8 next;
	__u8 length; /* in units of 8 bytes, without the first */
	__be16 field;
	__be32 identification;
};

static __always_inline bool transport_is_extension(__u8 number)
{
	return number == IPV6_HOP_BY_HOP || number == IPV6_ROUTING || number == IPV6_FRAGMENT ||
	       number == IPV6_DESTINATION;
}

/* Notes that the packet is a fragment, `offset` bytes into a larger one. */
static __always_inline void transport_take_piece(struct transport *t, __u32 offset, bool more, __u32 id)
{
	t->in_pieces = more ? TRANSPORT_MORE : TRANSPORT_LAST;
	t->fragment = id;
	if (!offset)
		return;
	t->kind = TRANSPORT_PIECE;
	if (offset < TRANSPORT_TCP_WHOLE && transport_has_flags(t->tuple.protocol))
		t->kind = TRANSPORT_BROKEN;
}

/*
 * Goes over extension headers: sets protocol, offset and what a fragment header says, of which a packet has one at most (RFC 8200, 4.1).
 * False if they cannot be read.
 */
SEPARATE bool transport_skip_extensions(struct __sk_buff *skb, struct transport *t)
{
	struct extension_header h;

	if (!t)
		return false;
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		__u8 number = t->tuple.protocol;

		if (!transport_is_extension(number))
			return true;
		if (t->offset + sizeof(h) > t->end || bpf_skb_load_bytes(skb, t->offset, &h, sizeof(h)))
			return false;
		t->tuple.protocol = h.next;
		t->offset += 8 + (number == IPV6_FRAGMENT ? 0 : h.length * 8);
		if (number != IPV6_FRAGMENT)
			continue;
		if (!(h.field & bpf_htons(0xfff9)))
			continue; /* the only fragment (RFC 6946) */
		if (t->in_pieces)
			return false;
		transport_take_piece(t, bpf_ntohs(h.field) & 0xfff8, h.field & bpf_htons(1), h.identification);
		if (t->kind != TRANSPORT_OTHER)
			return true;
	}
	return !transport_is_extension(t->tuple.protocol);
}

/* What the IPv4 header says about fragments (RFC 791, 3.1). */
static __always_inline void transport_ipv4_pieces(struct transport *t, __be16 frag_off, __be16 id)
{
	if (likely(!(frag_off & bpf_htons(0x3fff))))
		return;
	transport_take_piece(t, (bpf_ntohs(frag_off) & 0x1fff) * 8, frag_off & bpf_htons(0x2000), id);
}

/* How much of its header a packet must have for its ports and flags to be known; 0: a protocol without. */
static __always_inline __u32 transport_needs(__u8 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return TRANSPORT_TCP_WHOLE;
	if (protocol == PROTOCOL_SCTP)
		return TRANSPORT_TCP_LENGTH;
	return protocol == PROTOCOL_UDP || transport_is_icmp(protocol) ? TRANSPORT_OTHER_LENGTH : 0;
}

/* Reads the transport header. False if the packet does not hold all of it that it needs. */
static __always_inline bool transport_read(struct __sk_buff *skb, const struct transport *t, struct transport_header *h)
{
	__u32 needs = transport_needs(t->tuple.protocol);

	if (!needs || t->offset + needs > t->end)
		return false;
	if (likely(transport_has_flags(t->tuple.protocol)))
		return !bpf_skb_load_bytes(skb, t->offset, h, TRANSPORT_TCP_LENGTH);
	h->flags = 0;
	return !bpf_skb_load_bytes(skb, t->offset, h, TRANSPORT_OTHER_LENGTH);
}

/* Whether a first fragment holds the whole header of TCP, with its options. */
static __always_inline bool transport_holds_tcp(const struct transport *t, const struct transport_header *h)
{
	__u32 length = (h->words >> 4) * 4;

	return length >= TRANSPORT_TCP_WHOLE && t->offset + length <= t->end;
}

/*
 * Takes ports, flags and the kind of message from the transport header at t->offset. By itself, since the verifier would walk its caller once for
 * each way through it.
 */
SEPARATE int transport_take_header(struct __sk_buff *skb, struct transport *t)
{
	struct transport_header h;
	bool read;

	if (!t)
		return 0;
	read = transport_read(skb, t, &h);
	if (unlikely(t->in_pieces && transport_needs(t->tuple.protocol)) &&
	    (!read || (t->tuple.protocol == PROTOCOL_TCP && !transport_holds_tcp(t, &h))))
		t->kind = TRANSPORT_BROKEN;
	else if (likely(read))
		transport_take(t, &h);
	return 0;
}

/*
 * Fills *t from a parsed IP packet, whose addresses and pointers are those of *p. Pointers stay valid. A whole packet that
 * is too short for its ports comes out as TRANSPORT_OTHER.
 */
static __always_inline void transport_parse(struct packet *p, struct transport *t)
{
	t->tuple.source = p->source;
	t->tuple.destination = p->destination;
	t->tuple.source_port = 0;
	t->tuple.destination_port = 0;
	t->tuple.padding[0] = t->tuple.padding[1] = t->tuple.padding[2] = 0;
	t->fragment = 0;
	t->kind = TRANSPORT_OTHER;
	t->flags = t->in_pieces = t->reply = 0;
	if (likely(p->protocol == bpf_htons(ETH_P_IP))) {
		t->tuple.protocol = p->ip4->protocol;
		t->offset = ETH_HLEN + p->ip4->ihl * 4;
		t->end = packet_end(p->skb, 0, p->ip4->tot_len);
		transport_ipv4_pieces(t, p->ip4->frag_off, p->ip4->id);
	} else {
		t->tuple.protocol = p->ip6->nexthdr;
		t->offset = ETH_HLEN + sizeof(struct ipv6hdr);
		t->end = packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len);
		if (unlikely(!transport_has_ports(t->tuple.protocol)) && !transport_skip_extensions(p->skb, t)) {
			t->kind = t->in_pieces ? TRANSPORT_BROKEN : TRANSPORT_UNREADABLE;
			return;
		}
	}
	if (unlikely(t->kind != TRANSPORT_OTHER))
		return;
	transport_take_header(p->skb, t);
}
