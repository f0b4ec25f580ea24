/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The VXLAN device. Ingress: from_tunnel, decapsulated packets. Egress: to_tunnel, packets of the kernel stack to
 * another node; packets of from_pod pass it encapsulated already.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/route.h"
#include "lib/fwd/tunnel.h"
#include "lib/nat/nat_rewrite.h"
#include "prog/wire.h"

/*
 * Validates the outer addresses and finds the route, or takes both from the flow cache. Anyone who reaches the
 * VXLAN port can inject packets with any source, so only nodes of the cluster are accepted, and only for their own
 * addresses.
 */
STAGE from_tunnel_lookup(struct packet *p, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);
	struct tunnel_endpoints ends;
	enum drop_reason objection;
	__u32 local; /* a hash: it compares addresses of this node only, so no sender can choose a collision */

	if (!fc)
		return PASS; /* internal error */
	*cached = fc;
	if (!tunnel_endpoints_of(p, &ends))
		return drop(p, DROP_UNKNOWN_TUNNEL_PEER);
	local = address_hash(&ends.local);
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now) &&
		   address_equals(&fc->route.next_hop, &ends.peer) && fc->expires == local))
		return NEXT;
	objection = tunnel_check_source(&ends, &p->source);
	if (objection)
		return drop(p, objection);
	from_wire_route(fc, p);
	if (config_macvlan && fc->route.kind == ROUTE_LOCAL && fc->route.resolved) {
		fc->expires = ~local; /* the parent has the place of the peer: each packet is validated */
	} else {
		fc->route.next_hop = ends.peer;
		fc->expires = local;
	}
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
	return NEXT;
}

SEC("tcx/ingress")
int from_tunnel(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_TUNNEL};
	enum verdict v = packet_parse(&p);
	struct flow_cache_entry *fc = 0;

	if (v == NEXT && !packet_is_ip(&p))
		v = drop(&p, DROP_NOT_IP);
	if (v == NEXT)
		v = from_tunnel_lookup(&p, &fc);
	if (v == NEXT)
		v = skb->pkt_type == PACKET_HOST ? from_wire_forward(&p, fc) : PASS;
	return finish(&p, v);
}

/*
 * Whether the kernel stack sent the packet: the device has no neighbours, so both MACs are its own. from_pod has
 * set the MACs of the route.
 */
static __always_inline bool to_tunnel_from_stack(const struct packet *p)
{
	const __u16 *to = (__u16 *)p->eth->h_dest, *from = (__u16 *)p->eth->h_source;

	return !((to[0] ^ from[0]) | (to[1] ^ from[1]) | (to[2] ^ from[2]));
}

/* Translates replies of backends on the node, as to_wire_nat. Replies of pods are translated already. */
STAGE to_tunnel_translate(struct packet *p)
{
	__u32 now = flow_cache_generation(), where = p->skb->ifindex | SCOPE_EGRESS;
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_EGRESS);

	if (!fc)
		return PASS; /* internal error */
	if (unlikely(!flow_cache_hit(fc, &p->source, &p->destination, where, now))) {
		fc->nat_checks = route_copy(&p->source, &fc->route) == ROUTE_LOCAL ? 0 : NAT_CHECK_REPLIES;
		flow_cache_store(fc, &p->source, &p->destination, where, now);
	}
	return fc->nat_checks ? nat_translate(p, HOOK_TO_WIRE, NAT_CHECK_REPLIES) : NEXT;
}

/* Sets the tunnel key. Without one the device drops the packet. */
STAGE to_tunnel_encap(struct packet *p)
{
	const struct route *r;

	if (!packet_has(p, 0))
		return drop(p, DROP_TRUNCATED); /* internal error */
	r = route_of(&p->destination);
	if (!r || !route_is_tunnel(r->kind))
		return PASS;
	if (!tunnel_encap(p, r))
		return r->kind == ROUTE_ENCRYPTED ? drop(p, DROP_ENCRYPTION_PENDING) : PASS;
	if (r->kind == ROUTE_TUNNEL)
		return PASS;
	p->action = bpf_redirect(r->ifindex, 0);
	return REDIRECT;
}

SEC("tcx/egress")
int to_tunnel(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_TUNNEL};
	enum verdict v = packet_parse(&p);

	if (v == NEXT && (!packet_is_ip(&p) || !to_tunnel_from_stack(&p)))
		v = PASS;
	if (v == NEXT && config_services)
		v = to_tunnel_translate(&p) == DROP ? DROP : NEXT;
	if (v == NEXT)
		v = to_tunnel_encap(&p);
	return finish(&p, v);
}
