/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Egress of the VXLAN device: the host's stack sends to pods and addresses of another node. */
#pragma once

#include "lib/finish.h"
#include "lib/tunnel.h"

/*
 * The device asks nobody for link-layer addresses: the stack puts the device's own one into both places. What
 * from_pod sends is addressed already.
 */
static __always_inline bool to_tunnel_from_stack(const struct packet *p)
{
	const __u16 *to = (__u16 *)p->eth->h_dest, *from = (__u16 *)p->eth->h_source;

	return !((to[0] ^ from[0]) | (to[1] ^ from[1]) | (to[2] ^ from[2]));
}

/* Without an end to go to, the device drops the packet. */
STAGE to_tunnel_enter(struct packet *p)
{
	const struct route *r;

	if (!packet_is_ip(p) || !to_tunnel_from_stack(p))
		return PASS;
	r = route_of(&p->destination);
	if (r && r->kind == ROUTE_TUNNEL)
		tunnel_enter(p, r);
	return PASS;
}

SEC("tcx/egress")
int to_tunnel(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_TUNNEL};
	enum verdict v = packet_parse(&p);

	if (v == NEXT)
		v = to_tunnel_enter(&p);
	return finish(&p, v);
}
