/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VXLAN (RFC 7348): how a packet gets to the other end of a tunnel, and from which end one came. */
#pragma once

#include "lib/net/hash.h"
#include "lib/fwd/source.h"

/* The one virtual network of the cluster. */
#define TUNNEL_VNI 1

/* TTL and hop limit of the packets outside, as of any that the node sends (IANA). */
#define TUNNEL_TTL 64

/*
 * Addresses the packet to the other end, from this node's own one. Outside, IPv4 has no UDP checksum (RFC 7348,
 * 4.1: it should be zero), since the packet inside has its own; IPv6 has one: without, only receivers that were told so take
 * the packet (RFC 6935). The DF bit stays clear: where the net between the nodes carries less than their links,
 * it cuts the packet instead of losing it. False, with the packet unchanged, if it cannot be had.
 */
static __noinline bool tunnel_encap(struct packet *p, const struct route *r)
{
	struct bpf_tunnel_key key = {.tunnel_id = TUNNEL_VNI, .tunnel_ttl = TUNNEL_TTL};
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
STAGE tunnel_send(struct packet *p, const struct route *r)
{
	if (unlikely(p->options || p->ttl <= 1) || !route_fits(p, r) || route_splits_fragments(p, r->mtu) ||
	    !tunnel_encap(p, r))
		return PASS;
	ttl_decrement(p);
	p->action = bpf_redirect(r->ifindex, 0);
	return REDIRECT;
}

/* Between which addresses a packet came through a tunnel. */
struct tunnel_endpoints {
	struct address peer, local;
};

/* False for another virtual network than the cluster's. */
static __noinline bool tunnel_endpoints_of(const struct packet *p, struct tunnel_endpoints *ends)
{
	struct bpf_tunnel_key key = {};

	if (!bpf_skb_get_tunnel_key(p->skb, &key, sizeof(key), 0)) {
		address_from_ipv4(&ends->peer, bpf_htonl(key.remote_ipv4));
		address_from_ipv4(&ends->local, bpf_htonl(key.local_ipv4));
		return key.tunnel_id == TUNNEL_VNI;
	}
	if (bpf_skb_get_tunnel_key(p->skb, &key, sizeof(key), BPF_F_TUNINFO_IPV6))
		return false;
	__builtin_memcpy(&ends->peer, key.remote_ipv6, sizeof(ends->peer));
	__builtin_memcpy(&ends->local, key.local_ipv6, sizeof(ends->local));
	return key.tunnel_id == TUNNEL_VNI;
}

/* This node's end as a number, for decisions. Only addresses of this node are compared by it, which no sender chooses. */
static __always_inline __u32 tunnel_local_hash(const struct address *local)
{
	return ((local->word[0] * HASH_MULTIPLIER ^ local->word[1]) * HASH_MULTIPLIER ^ local->word[2]) *
		       HASH_MULTIPLIER ^
	       local->word[3];
}

/*
 * Why a packet that came between these addresses is not taken: 0, or a reason to drop it. It has to be from a node's InternalIP to one of
 * this node's, since only between these nodes send, and its source has to be that node's.
 */
static __always_inline enum drop_reason tunnel_check_source(const struct tunnel_endpoints *ends,
							    const struct address *source)
{
	const struct route *r = route_of_host(&ends->peer);

	if (!r || r->kind == ROUTE_LOCAL)
		return DROP_UNKNOWN_TUNNEL_PEER;
	r = route_of_host(&ends->local);
	if (!r || r->kind != ROUTE_CLUSTER)
		return DROP_TUNNEL_PORT;
	return source_is_tunnel_peer(source, &ends->peer) ? DROP_NONE : DROP_INVALID_SOURCE;
}
