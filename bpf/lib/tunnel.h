/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VXLAN (RFC 7348): how a packet gets to the other end of a tunnel, and from which end one came. */
#pragma once

#include "route.h"

/* The one virtual network of the cluster. */
#define TUNNEL_VNI 1

/* TTL and hop limit of the packets outside, as of any that the node sends (IANA). */
#define TUNNEL_HOPS 64

/*
 * Addresses the packet to the other end, from this node's own one. Outside, IPv4 has no UDP checksum (RFC 7348,
 * 4.1: it should be zero), since the packet inside has its own; IPv6 has one: without, only receivers that were told so take
 * the packet (RFC 6935). The DF bit stays clear: where the net between the nodes carries less than their links,
 * it cuts the packet instead of losing it. False, with the packet unchanged, if it cannot be had.
 */
static __noinline bool tunnel_enter(struct packet *p, const struct route *r)
{
	struct bpf_tunnel_key key = {.tunnel_id = TUNNEL_VNI, .tunnel_ttl = TUNNEL_HOPS};
	__u32 family = !address_is_ipv4(&r->next_hop);
	const struct address *source = bpf_map_lookup_elem(&tunnel_sources, &family);
	__u64 flags = BPF_F_ZERO_CSUM_TX;

	if (!source)
		return false; /* cannot be: both families have their element */
	if (family) {
		flags = BPF_F_TUNINFO_IPV6;
		__builtin_memcpy(key.remote_ipv6, &r->next_hop, sizeof(key.remote_ipv6));
		__builtin_memcpy(key.local_ipv6, source, sizeof(key.local_ipv6));
	} else {
		key.remote_ipv4 = bpf_ntohl(r->next_hop.word[3]);
		key.local_ipv4 = bpf_ntohl(source->word[3]);
	}
	if (bpf_skb_set_tunnel_key(p->skb, &key, sizeof(key), flags))
		return false;
	__builtin_memcpy(p->eth->h_dest, r->next_hop_mac, ETH_ALEN);
	__builtin_memcpy(p->eth->h_source, r->uplink_mac, ETH_ALEN);
	return true;
}

/* Out through the VXLAN device to the node that has the pod. What does not fit is the stack's, as on a wire. */
STAGE route_to_tunnel(struct packet *p, const struct route *r)
{
	if (unlikely(p->options || p->hops <= 1) || !route_fits(p, r) || route_parts(p, r->mtu) || !tunnel_enter(p, r))
		return PASS;
	hop_take(p);
	p->action = bpf_redirect(r->ifindex, 0);
	return REDIRECT;
}

/* The address of the node that put the packet into the tunnel. False for another virtual network than the cluster's. */
static __noinline bool tunnel_peer(const struct packet *p, struct address *peer)
{
	struct bpf_tunnel_key key = {};

	if (!bpf_skb_get_tunnel_key(p->skb, &key, sizeof(key), 0)) {
		address_from_ipv4(peer, bpf_htonl(key.remote_ipv4));
		return key.tunnel_id == TUNNEL_VNI;
	}
	if (bpf_skb_get_tunnel_key(p->skb, &key, sizeof(key), BPF_F_TUNINFO_IPV6))
		return false;
	__builtin_memcpy(peer, key.remote_ipv6, sizeof(*peer));
	return key.tunnel_id == TUNNEL_VNI;
}

/* Every node's addresses are prefixes of their own in `routes`, and so are some pods of this one (ROUTE_LOCAL). */
static __always_inline bool tunnel_peer_known(const struct address *peer)
{
	struct route_key key = {.prefix_len = 128, .address = *peer};
	const struct route *r = bpf_map_lookup_elem(&routes, &key);

	return r && r->kind != ROUTE_LOCAL;
}
