/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tunnels to other nodes. VXLAN (RFC 7348): encapsulation, and validation of decapsulated packets. WireGuard and
 * IPsec: their devices find the peer by the destination. WireGuard has verified the source of what it delivers, IPsec has not.
 */
#pragma once

#include "lib/fwd/source.h"
#include "lib/net/hash.h"

/* The virtual network of the cluster. */
#define TUNNEL_VNI 1

/* Outer TTL and hop limit: the default of Linux. */
#define TUNNEL_TTL 64

/*
 * Sets the tunnel key: remote end, and this node's address. Over IPv4 the outer UDP checksum is zero (RFC 7348,
 * 4.1); over IPv6 it is computed, since receivers drop packets without one (RFC 6935). DF stays clear: a network
 * between nodes with a smaller MTU fragments the outer packet. The others need a device only. Returns false if the
 * key cannot be set or the device is missing; the packet is unchanged.
 */
static __noinline bool tunnel_encap(struct packet *p, const struct route *r)
{
	struct bpf_tunnel_key key = {.tunnel_id = TUNNEL_VNI, .tunnel_ttl = TUNNEL_TTL};
	__u32 family = !address_is_ipv4(&r->next_hop);
	const struct address *source;
	__u64 flags = BPF_F_ZERO_CSUM_TX;

	if (r->kind == ROUTE_ENCRYPTED)
		return r->ifindex;
	source = bpf_map_lookup_elem(&tunnel_sources, &family);
	if (!source)
		return false; /* internal error */
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
	packet_set_macs(p->eth, r);
	return true;
}

/* Redirects to the tunnel's device. The kernel stack handles options, TTL 1 and packets that exceed the MTU. */
STAGE tunnel_send(struct packet *p, const struct route *r)
{
	if (unlikely(p->options || p->ttl <= 1) || !route_fits(p, r) || route_splits_fragments(p, r->mtu))
		return PASS;
	if (!tunnel_encap(p, r))
		return r->kind == ROUTE_ENCRYPTED ? drop(p, DROP_ENCRYPTION_PENDING) : PASS;
	ttl_decrement(p);
	p->action = bpf_redirect(r->ifindex, 0);
	return REDIRECT;
}

/* Outer addresses of a decapsulated packet. */
struct tunnel_endpoints {
	struct address peer, local;
};

/* Returns false for another virtual network. */
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

/*
 * Validates a decapsulated packet: 0 or a drop reason. It must come from a node's InternalIP to an InternalIP of
 * this node, and its source must belong to that node.
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
