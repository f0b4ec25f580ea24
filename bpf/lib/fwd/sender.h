/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Senders, for limits per sender: ICMP errors, tracked fragments, flow events. A pod is identified by its device,
 * which it cannot choose. External hosts can forge sources: they share SENDERS_EXTERNAL buckets by prefix, cluster
 * addresses one bucket each, and never share one with a local pod.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/fwd/route.h"
#include "lib/net/hash.h"
#include "lib/net/packet.h"

/* Buckets of external senders for each program, a power of two. */
#define SENDERS_EXTERNAL 256

/*
 * The bucket of an external source: its /24 or /64, since one host may own all of it. Addresses with a route in
 * the cluster hash one by one: pods of a node share their prefix.
 */
GLOBAL_FN __u32 sender_external(const struct address *source)
{
	__u32 hash;

	if (!source)
		return 0;
	if (route_kind_of(source) != ROUTE_UNKNOWN)
		hash = address_hash(source);
	else if (address_is_ipv4(source))
		hash = bpf_ntohl(source->word[3]) >> 8;
	else
		hash = source->word[0] * HASH_MULTIPLIER ^ source->word[1];
	return hash * HASH_MULTIPLIER >> 24;
}

/* The sender of a packet with this source, as `program` sees it. from_macvlan has validated the source. */
static __always_inline struct sender sender_of(struct __sk_buff *skb, __u32 program, const struct address *source)
{
	const struct endpoint *e;
	struct sender who = {};

	_Static_assert(SENDERS_EXTERNAL == 1 << 8, "sender_external returns 8 bits");
	switch (program) {
	case PROGRAM_FROM_POD:
		who.device = skb->ifindex;
		break;
	case PROGRAM_FROM_MACVLAN:
		e = endpoint_of(source);
		who.device = e ? e->ifindex : 0; /* as from_pod at the host end */
		break;
	case PROGRAM_TO_POD:
	case PROGRAM_TO_WIRE:
	case PROGRAM_TO_TUNNEL:
		/* A forwarded packet came by a pod's device, or by one from outside. 0: the node itself. */
		who.device = skb->ingress_ifindex;
		if (who.device)
			who.external = 1 + sender_external(source);
		break;
	default:
		who.external = (program + 1) * SENDERS_EXTERNAL + sender_external(source);
	}
	return who;
}
