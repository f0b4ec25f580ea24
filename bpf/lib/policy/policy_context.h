/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet as policies see it: with the addresses of the pods at both ends. */
#pragma once

#include "lib/flow/drops.h"
#include "lib/fwd/source.h"
#include "lib/nat/nat_table.h"
#include "lib/net/fragment.h"
#include "lib/net/icmp.h"
#include "lib/net/packet.h"
#include "lib/net/sctp.h"
#include "lib/policy/verdict_cache.h"

/* In `policy_scratch`: too large for the BPF stack. */
struct policy_context {
	struct transport transport; /* of an ICMP error: tuple of the error's direction */
	struct tuple key;	    /* of the conntrack entry */
	struct ct_entry entry;	    /* a new entry */
	struct icmp_error_quote error;
	struct address sender;		       /* source of the packet itself, also of an ICMP error */
	struct address source_after_nat;       /* the sender as seen by the receiver's sockets */
	struct address destination_before_nat; /* the receiver as seen by the sender's sockets */
	__be16 source_port, destination_port;  /* after NAT, for the verdict cache */
	__be16 source_port_after_nat, destination_port_before_nat;
	__u32 known;   /* enum policy_known */
	__u32 enforce; /* enum enforce_flag */
	__u32 revision;
	__u32 program;		 /* enum program */
	__u32 reversed;		 /* the source is the key's destination */
	__u32 nat_reply;	 /* reply of a translated connection */
	__u32 has_entry;	 /* there is an entry */
	__u32 flushed;		 /* which is in `conntrack` */
	__u32 initiator_unknown; /* the other end may be the initiator, and may no longer initiate */
	__u32 reply;		 /* no entry, and the receiver is the initiator */
	__u32 check_both;	 /* both directions must be allowed: the supposed initiator accepted the connection */
	__u32 new_slot;		 /* index in `ct_new` */
	struct flow_origin origin;
	struct bpf_sock_tuple socket; /* scratch for socket lookups */
};
_Static_assert(sizeof(struct policy_context) <= POLICY_SCRATCH_SIZE, "policy_context fits policy_scratch");

/* Programs on one CPU do not interrupt each other. */
static __always_inline struct policy_context *policy_context_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&policy_scratch, &zero);
}

/*
 * Whether packets of *entry are replies, as far as NAT knows: its first packet may have been mid-stream. Entries
 * that translate nothing do not count, and an accepted socket counts for more.
 */
static __always_inline bool policy_context_is_reply(const struct nat_entry *entry)
{
	return !(entry->flags & (NAT_INITIATOR | NAT_UNCHANGED));
}

/* The SCTP ports are those of TCP (RFC 9260, 3.1). */
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

/* Whether the sender of an ICMP error can have seen the quoted packet. A pod has if it was the receiver. */
static __always_inline bool policy_context_error_is_plausible(const struct packet *p, const struct policy_context *pc)
{
	const struct tuple *t = &pc->transport.tuple, *quoted = &pc->error.tuple;

	switch (pc->program) {
	case PROGRAM_FROM_POD:
		return address_equals(&t->source, &quoted->source);
	case PROGRAM_FROM_TUNNEL:
	case PROGRAM_FROM_WIREGUARD:
	case PROGRAM_FROM_IPSEC:
		return source_may_report_error(&t->source, quoted, true);
	case PROGRAM_FROM_WIRE:
		return source_may_report_error(&t->source, quoted, false);
	case PROGRAM_TO_POD:
		return source_valid_from_device(&quoted->source, &quoted->destination, p->skb->ingress_ifindex);
	default:
		return true;
	}
}

/*
 * Assigns an ICMP error to the connection that it quotes, if it is addressed to the quoted source and its sender
 * is plausible. Other messages count as a protocol without ports.
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

/* Conntrack has no SCTP states. */
static __always_inline void policy_context_clear_flags(struct transport *t)
{
	if (t->tuple.protocol == PROTOCOL_SCTP)
		t->flags = 0;
}

/* transport_parse for the common case: unfragmented TCP with a directly readable header. Returns false for others. */
static __always_inline bool policy_context_read_tcp(const struct packet *p, struct transport *t)
{
	const struct transport_header *h;
	struct packet_transport at;

	if (!packet_find_transport(p, &at) || at.protocol != PROTOCOL_TCP)
		return false;
	h = at.header;
	t->offset = at.start;
	t->end = at.end;
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

/* Parses an unchanged packet. Later fragments get the ports of the first one. */
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
 * Reports a drop by policies with the tuple that policies see, not with a Service's address. Of an ICMP error only
 * the receiver is reported: the quotation may be forged. The result has no meaning.
 */
GLOBAL_FN int policy_report_drop(struct __sk_buff *skb, __u32 drop_id)
{
	struct policy_context *pc = policy_context_get();

	if (pc && pc->transport.kind == TRANSPORT_ERROR) {
		const struct address receiver = pc->transport.tuple.destination;

		flow_read(skb, &pc->transport);
		pc->transport.tuple.destination = receiver;
	} else if (!pc || pc->transport.kind != TRANSPORT_PORTS) {
		return flow_packet_dropped(skb, drop_id); /* not translated */
	}
	return flow_dropped(&pc->transport.tuple, drop_id, pc->transport.flags, skb->len, skb->ifindex);
}

/* Whether the packet may start a connection. Without TCP every packet may, unless it is a reply. */
static __always_inline bool transport_may_initiate(const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP ? transport_is_syn(t) : true;
}

/* Whether an unfragmented TCP packet has no payload. The frame may be longer, padded to 60 bytes. */
static __noinline bool transport_has_no_payload(struct __sk_buff *skb, const struct transport *t)
{
	__u8 words = 0;

	bpf_skb_load_bytes(skb, t->offset + __builtin_offsetof(struct transport_header, words), &words, sizeof(words));
	return t->end <= t->offset + (words >> 4) * 4;
}

/* Whether the packet is TCP without SYN and payload. */
static __always_inline bool transport_is_bare_tcp(struct __sk_buff *skb, const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP && !(t->flags & TCP_SYN) && !t->in_fragments &&
	       transport_has_no_payload(skb, t);
}
