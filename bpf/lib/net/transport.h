/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parses the transport header of an skb. */
#pragma once

#include "lib/net/extension.h"

/* Bytes of the transport header that must be present to read ports and flags; 0 for protocols without ports. */
static __always_inline __u32 transport_needs(__u8 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return TRANSPORT_TCP_WHOLE;
	if (protocol == PROTOCOL_SCTP)
		return TRANSPORT_TCP_LENGTH;
	return protocol == PROTOCOL_UDP || transport_is_icmp(protocol) ? TRANSPORT_OTHER_LENGTH : 0;
}

/* Reads the transport header. Returns false if the packet is too short. */
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

/* Whether a first fragment contains the whole TCP header with its options. */
static __always_inline bool transport_holds_tcp(const struct transport *t, const struct transport_header *h)
{
	__u32 length = (h->words >> 4) * 4;

	return length >= TRANSPORT_TCP_WHOLE && t->offset + length <= t->end;
}

/*
 * Reads ports, flags and ICMP type from the header at t->offset. A global function: inlined, the verifier would
 * walk the caller once for each outcome.
 */
GLOBAL_FN int transport_set_header(struct __sk_buff *skb, struct transport *t)
{
	struct transport_header h;
	bool read;

	if (!t)
		return 0;
	read = transport_read(skb, t, &h);
	if (unlikely(t->in_fragments && transport_needs(t->tuple.protocol)) &&
	    (!read || (t->tuple.protocol == PROTOCOL_TCP && !transport_holds_tcp(t, &h))))
		t->kind = TRANSPORT_BROKEN;
	else if (likely(read))
		transport_set(t, &h);
	return 0;
}

/*
 * Parses the transport header of an IP packet. Pointers of *p stay valid. An unfragmented packet that is too short
 * for its ports becomes TRANSPORT_OTHER.
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
	t->flags = t->in_fragments = t->reply = 0;
	if (likely(p->protocol == bpf_htons(ETH_P_IP))) {
		t->tuple.protocol = p->ip4->protocol;
		t->offset = ETH_HLEN + p->ip4->ihl * 4;
		t->end = packet_end(p->skb, 0, p->ip4->tot_len);
		transport_set_ipv4_fragment(t, p->ip4->frag_off, p->ip4->id);
	} else {
		t->tuple.protocol = p->ip6->nexthdr;
		t->offset = ETH_HLEN + sizeof(struct ipv6hdr);
		t->end = packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len);
		if (unlikely(!transport_has_ports(t->tuple.protocol)) && !transport_skip_extensions(p->skb, t)) {
			t->kind = t->in_fragments ? TRANSPORT_BROKEN : TRANSPORT_UNREADABLE;
			return;
		}
	}
	if (unlikely(t->kind != TRANSPORT_OTHER))
		return;
	transport_set_header(p->skb, t);
}
