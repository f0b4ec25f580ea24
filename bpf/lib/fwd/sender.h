/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who is behind a packet, for what each has a share of: errors that are sent, first fragments that are remembered, events that tell. A pod
 * is known by the device that brought its packet, which it cannot choose. Whoever is outside can write any source: all of them together are
 * so many, by their prefix or, in the cluster, by their address, and never meet a pod of this node.
 */
#pragma once

#include "lib/net/hash.h"
#include "lib/net/packet.h"
#include "lib/fwd/route.h"

/* How many those outside are, for each program that hears them. A power of two. */
#define SENDERS_EXTERNAL 256

/*
 * One of those outside, by the /24 or /64 that the address is in: who has one has all of them. Of the cluster's addresses, which have a
 * route, each is somebody's own: pods of one node share their prefix.
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

/* Who has sent a packet with this source, as `program` sees it. */
static __always_inline struct sender sender_of(struct __sk_buff *skb, __u32 program, const struct address *source)
{
	struct sender who = {};

	_Static_assert(SENDERS_EXTERNAL == 1 << 8, "sender_outside has 8 bits");
	switch (program) {
	case PROGRAM_FROM_POD:
		who.device = skb->ifindex;
		break;
	case PROGRAM_TO_POD:
	case PROGRAM_TO_WIRE:
	case PROGRAM_TO_TUNNEL:
		/* What the stack forwards came by a device: a pod's, whose source is its own, or one from outside. 0: the node itself. */
		who.device = skb->ingress_ifindex;
		if (who.device)
			who.external = 1 + sender_external(source);
		break;
	default:
		who.external = (program + 1) * SENDERS_EXTERNAL + sender_external(source);
	}
	return who;
}
