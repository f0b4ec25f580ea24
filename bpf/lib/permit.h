/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Permits: that packets like the last one belong to a session which is allowed, kept with the decision about their addresses. */
#pragma once

#include "policy.h"
#include "session_key.h"
#include "transport.h"
#include "young.h"

/* Time in units of a quarter of a second to 2.5 seconds (2^8 ticks of the kernel): reading it costs a load and no call. */
static __always_inline __u32 permit_now(void)
{
	return bpf_jiffies64() >> 8;
}

/* In memory of the CPU's own, since the stack of those who end permits has no room for it: `permit_keys`. */
struct permit_keys {
	struct tuple packet, session;
};

/* Takes the permit back; what went by it is added to its session, if that is still there. */
SEPARATE int permit_end(struct decision *d)
{
	__u32 zero = 0;
	struct permit_keys *keys = bpf_map_lookup_elem(&permit_keys, &zero);
	struct permit *permit;
	struct session *s;
	bool turned;

	if (!policy_tracks() || !d || !keys)
		return 0;
	permit = &d->permit;
	if (permit->protocol && permit->packets && !permit->elsewhere) {
		keys->packet.source = permit->sender;
		keys->packet.destination = d->destination;
		keys->packet.source_port = permit->sender_port;
		keys->packet.destination_port = permit->destination_port;
		keys->packet.protocol = permit->protocol;
		turned = session_key(&keys->session, &keys->packet);
		s = session_find(&keys->session);
		if (s)
			session_count(s, session_direction(s, turned), permit->packets, permit->bytes);
	}
	permit->protocol = 0;
	permit->packets = 0;
	permit->bytes = 0;
	return 0;
}

/*
 * Whether a permit covers packets with these ports, which is all that is asked about most. TCP that opens or ends something
 * has more to be asked.
 */
static __always_inline bool permit_covers(const struct permit *permit, __be16 source_port, __be16 destination_port,
					  __u8 protocol, __u8 flags)
{
	return permit->protocol == protocol && permit->source_port == source_port &&
	       permit->destination_port == destination_port && !(flags & (TCP_SYN | TCP_FIN | TCP_RST)) &&
	       permit->revision == policy_revision() && permit->until == permit_now();
}

static __always_inline void permit_use(struct permit *permit, __u32 bytes)
{
	permit->packets++;
	permit->bytes += bytes;
}

/* Where the flags of TCP are, from its beginning. */
#define PERMIT_TCP_FLAGS 13

/* The ports and flags of a whole packet of TCP or UDP, as they are in it. */
struct permit_ports {
	__be16 source, destination;
	__u8 rest[PERMIT_TCP_FLAGS - 4];
	__u8 flags;
};

/* Whether the decision's permit covers a packet that goes as it is. Only what can be read at once: all else is asked about. */
static __always_inline bool permit_holds(const struct packet *p, struct decision *d)
{
	const struct permit_ports *ports;
	__u32 end, start;
	__u8 protocol;

	if (p->protocol == bpf_htons(ETH_P_IP)) {
		if (unlikely(p->options || p->ip4->frag_off & bpf_htons(0x3fff)))
			return false;
		protocol = p->ip4->protocol;
		ports = (void *)(p->ip4 + 1);
		start = ETH_HLEN + sizeof(struct iphdr);
		end = packet_end(p->skb, 0, p->ip4->tot_len);
	} else {
		protocol = p->ip6->nexthdr;
		ports = (void *)(p->ip6 + 1);
		start = ETH_HLEN + sizeof(struct ipv6hdr);
		end = packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len);
	}
	if (unlikely(end < start + (protocol == PROTOCOL_TCP ? TRANSPORT_TCP_WHOLE : TRANSPORT_OTHER_LENGTH)))
		return false;
	if (protocol == PROTOCOL_TCP) {
		if ((void *)(ports + 1) > p->end)
			return false;
		if (!permit_covers(&d->permit, ports->source, ports->destination, protocol, ports->flags))
			return false;
	} else if (protocol != PROTOCOL_UDP || (void *)ports->rest > p->end ||
		   !permit_covers(&d->permit, ports->source, ports->destination, protocol, 0)) {
		return false;
	}
	permit_use(&d->permit, p->skb->len);
	return true;
}
