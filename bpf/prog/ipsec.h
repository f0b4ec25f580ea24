/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The XFRM interface. Ingress: from_ipsec, what IPsec has decrypted, with the Ethernet header of the encrypted packet. What
 * leaves by it is redirected by from_pod, by from_wire, and, for the kernel stack, by to_tunnel at the VXLAN device.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/route.h"
#include "lib/nat/nat_rewrite.h"
#include "prog/wire.h"

/* The node that has encrypted the packet: the remote end of the state that has decrypted it. Returns false without. */
static __noinline bool ipsec_peer(struct __sk_buff *skb, struct address *peer)
{
	struct bpf_xfrm_state state = {};

	if (bpf_skb_get_xfrm_state(skb, 0, &state, sizeof(state), 0))
		return false;
	if (state.family == FAMILY_IPV4)
		address_from_ipv4(peer, state.remote_ipv4);
	else
		__builtin_memcpy(peer, state.remote_ipv6, sizeof(*peer));
	return true;
}

/*
 * Validates the source and finds the route, or takes both from the flow cache. A node can encrypt a packet with any source,
 * so the source has to be one that is reached by that node. Each packet is compared with the peer: a flow cache entry for a pod
 * with a macvlan device has its parent in that place, and is never hit.
 */
STAGE from_ipsec_lookup(struct packet *p, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);
	struct address peer;

	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR);
	*cached = fc;
	if (!ipsec_peer(p->skb, &peer))
		return drop(p, DROP_UNENCRYPTED);
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now) &&
		   address_equals(&fc->route.next_hop, &peer)))
		return NEXT;
	if (!source_is_encrypted_by(&p->source, &peer))
		return drop(p, DROP_INVALID_SOURCE);
	from_wire_route(fc, p);
	if (!config_macvlan || fc->route.kind != ROUTE_LOCAL || !fc->route.resolved)
		fc->route.next_hop = peer;
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

SEC("tcx/ingress")
int from_ipsec(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_IPSEC};
	enum verdict v = packet_parse(&p);
	struct flow_cache_entry *fc = 0;

	if (v == NEXT && !packet_is_ip(&p))
		v = drop(&p, DROP_NOT_IP);
	if (v == NEXT)
		v = from_ipsec_lookup(&p, &fc);
	if (v == NEXT)
		v = from_wire_forward(&p, fc);
	return finish(&p, v);
}
