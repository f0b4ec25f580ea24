/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The verdict cache: the last allowed connection of a flow cache entry. Packets that match it skip conntrack. */
#pragma once

#include "lib/net/transport.h"
#include "lib/policy/ct_key.h"
#include "lib/policy/ct_new.h"
#include "lib/policy/policy.h"

/* Units of 2^8 jiffies, 0.25 to 2.5 s. Reading it needs no helper call. */
static __always_inline __u32 verdict_cache_clock(void)
{
	return bpf_jiffies64() >> 8;
}

/* In `verdict_scratch`: the stack is full. */
struct verdict_scratch {
	struct tuple packet, entry;
};

/* Ends a cached verdict and adds its counters to the conntrack entry, if that still exists. */
GLOBAL_FN int verdict_cache_end(struct flow_cache_entry *fc)
{
	__u32 zero = 0;
	struct verdict_scratch *keys = bpf_map_lookup_elem(&verdict_scratch, &zero);
	struct verdict_cache *cached;
	struct ct_entry *ct;
	bool reversed;

	if (!policy_tracks() || !fc || !keys)
		return 0;
	cached = &fc->verdict;
	if (cached->protocol && cached->packets && !cached->uncounted) {
		keys->packet.source = cached->sender;
		keys->packet.destination = fc->destination;
		keys->packet.source_port = cached->sender_port;
		keys->packet.destination_port = cached->destination_port;
		keys->packet.protocol = cached->protocol;
		reversed = ct_key(&keys->entry, &keys->packet);
		ct = ct_find(&keys->entry);
		if (ct)
			ct_count(ct, ct_direction(ct, reversed), cached->packets, cached->bytes);
	}
	cached->protocol = 0;
	cached->packets = 0;
	cached->bytes = 0;
	return 0;
}

/*
 * Whether the verdict applies to packets with these ports. TCP packets that start or end a connection are
 * evaluated.
 */
static __always_inline bool verdict_cache_covers(const struct verdict_cache *cached, __be16 source_port,
						 __be16 destination_port, __u8 protocol, __u8 flags)
{
	return cached->protocol == protocol && cached->source_port == source_port &&
	       cached->destination_port == destination_port && !(flags & (TCP_SYN | TCP_FIN | TCP_RST)) &&
	       cached->revision == policy_revision() && cached->until == verdict_cache_clock();
}

static __always_inline void verdict_cache_count(struct verdict_cache *cached, __u32 bytes)
{
	cached->packets++;
	cached->bytes += bytes;
}

/*
 * Whether the cached verdict applies to an unchanged packet. Packets whose header is not directly readable are
 * evaluated.
 */
static __always_inline bool verdict_cache_hit(const struct packet *p, struct flow_cache_entry *fc)
{
	const struct transport_header *ports;
	struct packet_transport at;
	__u8 protocol;

	if (!packet_find_transport(p, &at))
		return false;
	ports = at.header;
	protocol = at.protocol;
	if (unlikely(at.end < at.start + (protocol == PROTOCOL_TCP ? TRANSPORT_TCP_WHOLE : TRANSPORT_OTHER_LENGTH)))
		return false;
	if (protocol == PROTOCOL_TCP) {
		if ((void *)(ports + 1) > p->end)
			return false;
		if (!verdict_cache_covers(&fc->verdict, ports->source, ports->destination, protocol, ports->flags))
			return false;
	} else if (protocol != PROTOCOL_UDP || (void *)&ports->sequence > p->end ||
		   !verdict_cache_covers(&fc->verdict, ports->source, ports->destination, protocol, 0)) {
		return false;
	}
	verdict_cache_count(&fc->verdict, p->skb->len);
	return true;
}
