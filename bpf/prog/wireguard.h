/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The WireGuard device. Ingress: from_wireguard, what it has decrypted. What leaves by it is redirected by from_pod, by
 * from_wire, and, for the kernel stack, by to_tunnel at the VXLAN device.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/route.h"
#include "lib/nat/nat_rewrite.h"
#include "prog/wire.h"

/* Gives the packet the Ethernet header that all programs expect. WireGuard's packets have none. */
static __always_inline bool wireguard_add_header(struct packet *p)
{
	if (bpf_skb_change_head(p->skb, ETH_HLEN, 0) || !packet_has(p, 0))
		return false;
	p->eth->h_proto = p->skb->protocol;
	return true;
}

/*
 * Validates the source and finds the route, or takes both from the flow cache. The device has checked that the source
 * belongs to the peer (allowed IPs), so it has to be one that only comes by this device.
 */
STAGE from_wireguard_lookup(struct packet *p, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);

	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR);
	*cached = fc;
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now)))
		return NEXT;
	if (route_kind_of(&p->source) != ROUTE_ENCRYPTED)
		return drop(p, DROP_INVALID_SOURCE);
	from_wire_route(fc, p);
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

SEC("tcx/ingress")
int from_wireguard(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_WIREGUARD};
	struct flow_cache_entry *fc = 0;
	enum verdict v;

	if (!wireguard_add_header(&p))
		return finish(&p, drop(&p, DROP_INTERNAL_ERROR));
	v = packet_parse(&p);
	if (v == NEXT && !packet_is_ip(&p))
		v = drop(&p, DROP_NOT_IP);
	if (v == NEXT)
		v = from_wireguard_lookup(&p, &fc);
	if (v == NEXT)
		v = from_wire_forward(&p, fc);
	return finish(&p, v);
}
