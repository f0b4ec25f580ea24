/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is asked about one packet of a pod that policies select: what it is, as the pod and its true peer know it. */
#pragma once

#include "lib/nat/nat_table.h"
#include "lib/flow/drops.h"
#include "lib/net/fragment.h"
#include "lib/net/icmp.h"
#include "lib/fwd/source.h"
#include "lib/net/packet.h"
#include "lib/net/sctp.h"
#include "lib/policy/verdict_cache.h"

/* In memory of the CPU's own, as struct nat_state: `policy_scratch`. */
struct policy_context {
	struct transport transport; /* of an ICMP error, the tuple of packets that go where it goes */
	struct tuple key;	    /* of its session */
	struct ct_entry entry;	    /* one that begins */
	struct icmp_error_quote error;
	struct address sender;		       /* of the packet as it comes, also of an ICMP error */
	struct address source_after_nat;       /* the sender as the receiver's sockets know it, with peer_port */
	struct address destination_before_nat; /* the receiver as the sender's sockets know it, with asked_port */
	__be16 source_port, destination_port;  /* that the packet has after translation, for the permit */
	__be16 source_port_after_nat, destination_port_before_nat;
	__u32 known;   /* enum policy_known */
	__u32 enforce; /* enum enforce_flag */
	__u32 revision;
	__u32 program;		 /* enum program */
	__u32 reversed;		 /* the packet's source is the key's destination */
	__u32 nat_reply;	 /* it is translated, and of a connection that its receiver has opened */
	__u32 initiator_unknown; /* its session was opened by the other end, which may not do that any more */
	__u32 reply;		 /* of no known session, and its receiver has opened that */
	__u32 check_both;	 /* the same, though a socket of who counts as its opener has accepted it */
	__u32 new_slot;		 /* index of the place that the session has while it is young */
	struct flow_origin origin;
	struct bpf_sock_tuple socket; /* one that is looked for */
};
_Static_assert(sizeof(struct policy_context) <= POLICY_SCRATCH_SIZE, "inquiries has room for it");

/* Programs on one CPU do not interrupt each other. NULL cannot be: the index has its element. */
static __always_inline struct policy_context *policy_context_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&policy_scratch, &zero);
}

/*
 * Whether packets of connection *entry go to who has opened it, as far as translation knows: the first packet that it saw may have been one in
 * the middle. So entries of what is not translated say nothing, and others less than an accepted socket.
 */
static __always_inline bool policy_context_is_reply(const struct nat_entry *entry)
{
	return !(entry->flags & (NAT_INITIATOR | NAT_UNCHANGED));
}

/* The ports of SCTP without a chunk are where TCP has them (RFC 9260, 3.1). */
static __always_inline void policy_context_read_sctp(struct __sk_buff *skb, struct transport *t)
{
	struct ports ports;

	if (t->offset + sizeof(struct sctp_header) > t->end ||
	    bpf_skb_load_bytes(skb, t->offset, &ports, sizeof(ports)))
		return;
	t->tuple.source_port = ports.source;
	t->tuple.destination_port = ports.destination;
	t->kind = TRANSPORT_PORTS;
}

/* Whether who sent an ICMP error can have seen the packet that it quotes. A pod tells of what it has received itself. */
static __always_inline bool policy_context_error_is_plausible(const struct packet *p, const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple, *quoted = &pc->error.tuple;

	switch (pc->program) {
	case PROGRAM_FROM_POD:
		return address_equals(&t->source, &quoted->source);
	case PROGRAM_FROM_TUNNEL:
	case PROGRAM_FROM_WIRE:
		return source_may_report_error(&t->source, quoted, pc->program == PROGRAM_FROM_TUNNEL);
	case PROGRAM_TO_POD:
		return source_valid_from_device(&quoted->source, &quoted->destination, p->skb->ingress_ifindex);
	default:
		return true;
	}
}

/*
 * An ICMP error belongs to the session whose packet it quotes, if it goes to who sent that and is of somebody who can have seen it. Other
 * messages are like any protocol without ports.
 */
static __always_inline void policy_context_read_error(struct packet *p, struct policy_context *pc)
{
	struct tuple *t = &pc->transport.tuple;

	if (icmp_error_read(p, &pc->error) && address_equals(&t->destination, &pc->error.tuple.destination) &&
	    policy_context_error_is_plausible(p, pc))
		*t = pc->error.tuple;
	else
		pc->transport.kind = TRANSPORT_OTHER;
}

/* Sessions of SCTP have no beginning and no end of their own: its chunks tell translation alone. */
static __always_inline void policy_context_clear_flags(struct transport *t)
{
	if (t->tuple.protocol == PROTOCOL_SCTP)
		t->flags = 0;
}

/*
 * The same as transport_parse for most packets that are asked about: TCP in one piece whose header can be read at once. False for all
 * others.
 */
static __always_inline bool policy_context_read_tcp(const struct packet *p, struct transport *t)
{
	const struct transport_header *h;

	if (p->protocol == bpf_htons(ETH_P_IP)) {
		if (p->options || p->ip4->frag_off & bpf_htons(0x3fff) || p->ip4->protocol != PROTOCOL_TCP)
			return false;
		h = (void *)(p->ip4 + 1);
		t->offset = ETH_HLEN + sizeof(struct iphdr);
		t->end = packet_end(p->skb, 0, p->ip4->tot_len);
	} else {
		if (p->ip6->nexthdr != PROTOCOL_TCP)
			return false;
		h = (void *)(p->ip6 + 1);
		t->offset = ETH_HLEN + sizeof(struct ipv6hdr);
		t->end = packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len);
	}
	if ((void *)(h + 1) > p->end || t->offset + TRANSPORT_TCP_WHOLE > t->end)
		return false;
	t->tuple.source = p->source;
	t->tuple.destination = p->destination;
	t->tuple.source_port = h->source;
	t->tuple.destination_port = h->destination;
	t->tuple.protocol = PROTOCOL_TCP;
	t->tuple.padding[0] = t->tuple.padding[1] = t->tuple.padding[2] = 0;
	t->fragment = 0;
	t->kind = TRANSPORT_PORTS;
	t->flags = h->flags;
	t->in_fragments = t->reply = 0;
	return true;
}

/* Fills pc->transport from a packet that goes as it is. Later fragments get the ports of the first one, if that was seen. */
static __noinline void policy_context_read(struct packet *p, struct policy_context *pc)
{
	struct transport *t = &pc->transport;

	if (likely(policy_context_read_tcp(p, t)))
		return;
	transport_parse(p, t);
	policy_context_clear_flags(t);
	if (t->kind == TRANSPORT_OTHER && t->tuple.protocol == PROTOCOL_SCTP)
		policy_context_read_sctp(p->skb, t);
	if (t->kind == TRANSPORT_ERROR)
		policy_context_read_error(p, pc);
	if (likely(!t->in_fragments))
		return;
	if (t->kind == TRANSPORT_PORTS) {
		if (!fragment_store(p, t))
			t->kind = TRANSPORT_BROKEN;
	} else if (t->kind == TRANSPORT_FRAGMENT && transport_needs(t->tuple.protocol) && fragment_lookup(p, t)) {
		t->kind = TRANSPORT_PORTS;
	}
}

/*
 * Tells of the drop of a packet that policies forbid as they know it, before translation or behind it: by the address that a
 * Service has, nobody would find the pod. Of an ICMP error that is whom it goes to alone: who sends it may write any quotation.
 * The result means nothing.
 */
GLOBAL_FN int policy_report_drop(struct __sk_buff *skb, __u32 what)
{
	struct policy_context *pc = policy_context_get();

	if (pc && pc->transport.kind == TRANSPORT_ERROR) {
		const struct address receiver = pc->transport.tuple.destination;

		flow_read(skb, &pc->transport);
		pc->transport.tuple.destination = receiver;
	} else if (!pc || pc->transport.kind != TRANSPORT_PORTS) {
		return flow_packet_dropped(skb, what); /* is not translated */
	}
	return flow_dropped(&pc->transport.tuple, what, pc->transport.flags, skb->len, skb->ifindex);
}

/* Whether the packet opens a connection, by the flags of TCP. */
static __always_inline bool transport_is_syn(const struct transport *t)
{
	return (t->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* Whether it may be the first one of its session. Of what is not TCP every one may, but for replies. */
static __always_inline bool transport_may_initiate(const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP ? transport_is_syn(t) : true;
}

/* Whether a packet of TCP in one piece carries nothing. Its frame may be longer, since Ethernet's are filled up to 60 bytes. */
static __noinline bool transport_has_no_payload(struct __sk_buff *skb, const struct transport *t)
{
	__u8 words = 0;

	bpf_skb_load_bytes(skb, t->offset + __builtin_offsetof(struct transport_header, words), &words, sizeof(words));
	return t->end <= t->offset + (words >> 4) * 4;
}

/* Whether a packet is TCP's, opens nothing and carries nothing. */
static __always_inline bool transport_is_bare_tcp(struct __sk_buff *skb, const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP && !(t->flags & TCP_SYN) && !t->in_fragments &&
	       transport_has_no_payload(skb, t);
}
