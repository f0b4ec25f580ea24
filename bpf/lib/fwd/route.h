/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Routes of the cluster, and redirection to another node without the kernel stack. */
#pragma once

#include "lib/fwd/handled.h"
#include "lib/net/packet.h"
#include "lib/net/ttl.h"

/* AF_INET and AF_INET6, as helpers give and take them. */
enum family {
	FAMILY_IPV4 = 2,
	FAMILY_IPV6 = 10,
};

/*
 * The route to an address; NULL for external addresses. Lengths are in order: the agent puts longer prefixes
 * before the shorter ones that contain them.
 */
static __always_inline const struct route *route_of(const struct address *a)
{
	__u32 family = !address_is_ipv4(a);
	const struct prefix_lengths *lengths = bpf_map_lookup_elem(&route_lengths, &family);

	if (!lengths)
		return 0;
	for (__u32 i = 0; i < PREFIX_LENGTHS_MAX && i < lengths->count; i++) {
		const struct address *mask = &lengths->mask[i];
		struct route_key key = {
			.prefix_len = lengths->prefix_len[i],
			.address.word = {a->word[0] & mask->word[0], a->word[1] & mask->word[1],
					 a->word[2] & mask->word[2], a->word[3] & mask->word[3]},
		};
		const struct route *r = bpf_map_lookup_elem(&routes, &key);

		if (r)
			return r;
	}
	return 0;
}

/* Copies the route. Returns ROUTE_UNKNOWN and leaves *to alone for external addresses. */
GLOBAL_FN enum route_kind route_copy(const struct address *a, struct route *to)
{
	const struct route *r = a ? route_of(a) : 0;

	if (!r || !to)
		return ROUTE_UNKNOWN;
	*to = *r;
	return r->kind;
}

/* Whether a route of this kind leads through a tunnel to another node. */
static __always_inline bool route_is_tunnel(enum route_kind kind)
{
	return kind == ROUTE_TUNNEL || kind == ROUTE_ENCRYPTED;
}

GLOBAL_FN enum route_kind route_kind_of(const struct address *a)
{
	const struct route *r = a ? route_of(a) : 0;

	return r ? r->kind : ROUTE_UNKNOWN;
}

/* The route of a /32 or /128: InternalIPs of nodes, and local pods outside the present pod CIDR. */
static __always_inline const struct route *route_of_host(const struct address *a)
{
	struct route_key key = {.prefix_len = 128, .address = *a};

	return bpf_map_lookup_elem(&routes, &key);
}

/*
 * Whether the packets of an SCTP GSO skb fit the device. They differ in size; only the kernel knows them (Linux
 * 5.12).
 */
static __noinline bool route_gso_fits(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 allowed = 0;

	return !bpf_check_mtu(skb, ifindex, &allowed, 0, BPF_MTU_CHK_SEGS);
}

/*
 * Whether every packet on the wire fits the MTU of a route. A GSO packet is cut into segments of gso_size bytes of
 * payload. Headers whose length is not known cheaply count as too big: the kernel stack, which then gets the
 * packet, decides exactly.
 */
static __always_inline bool route_fits(const struct packet *p, const struct route *route)
{
	__u32 headers, mtu = route->mtu;
	__u8 next;

	if (likely(p->skb->len - ETH_HLEN <= mtu))
		return true;
	if (!p->skb->gso_size)
		return false;
	if (p->protocol == bpf_htons(ETH_P_IP)) {
		next = p->ip4->protocol;
		headers = sizeof(struct iphdr);
	} else {
		next = p->ip6->nexthdr;
		headers = sizeof(struct ipv6hdr);
	}
	if (next == PROTOCOL_TCP) {
		__u8 *offset = (void *)p->eth + ETH_HLEN + headers + 12; /* data offset (RFC 9293, 3.1) */

		if ((void *)(offset + 1) > p->end)
			return false;
		headers += (*offset >> 4) * 4;
	} else if (next == PROTOCOL_UDP) {
		headers += 8;
	} else {
		return next == PROTOCOL_SCTP && route_gso_fits(p->skb, route->ifindex);
	}
	return headers + p->skb->gso_size <= mtu;
}

/* Whether the ingress device allows larger packets than the route. */
static __noinline bool route_below_device_mtu(struct __sk_buff *skb, __u32 mtu)
{
	__u32 allowed = 0;

	bpf_check_mtu(skb, 0, &allowed, 0, 0); /* Linux 5.12; sets `allowed` whatever it returns */
	return !allowed || allowed > mtu;
}

/*
 * Whether some fragments of this packet fit the route and others may not. The kernel stack may reassemble
 * (conntrack does) before it fragments again, and would miss those that were redirected.
 */
static __always_inline bool route_splits_fragments(const struct packet *p, __u32 mtu)
{
	bool piece;

	if (p->protocol == bpf_htons(ETH_P_IP))
		piece = p->ip4->frag_off & bpf_htons(0x3fff);
	else
		piece = p->ip6->nexthdr == 44; /* the fragment header (RFC 8200, 4.5) */
	return unlikely(piece) && route_below_device_mtu(p->skb, mtu);
}

/* Whether the agent still follows the neighbour table. If not, next_hop_mac may be stale. */
static __always_inline bool neigh_lease_valid(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&neigh_lease, &zero);

	return until && bpf_ktime_get_coarse_ns() < *until;
}

/*
 * Redirects the packet to the device of *r: with the MACs of *r if `known`, else through the kernel's neighbour
 * table.
 */
STAGE route_redirect(struct packet *p, const struct route *r, bool known)
{
	struct bpf_redir_neigh hop = {};

	ttl_decrement(p);
	/* For from_macvlan the kernel has no record of who sends it. */
	if (config_macvlan || (handled_at_netkit(p) && config_to_wire))
		handled_set(p->skb);
	if (likely(known)) {
		packet_set_macs(p->eth, r);
		p->action = bpf_redirect(r->ifindex, 0);
		return REDIRECT;
	}
	if (address_is_ipv4(&r->next_hop)) {
		hop.nh_family = FAMILY_IPV4;
		hop.ipv4_nh = r->next_hop.word[3];
	} else {
		hop.nh_family = FAMILY_IPV6;
		__builtin_memcpy(hop.ipv6_nh, &r->next_hop, sizeof(hop.ipv6_nh));
	}
	p->action = bpf_redirect_neigh(r->ifindex, &hop, sizeof(hop), 0);
	return REDIRECT;
}

/* Redirects to the uplink. The kernel stack handles options, TTL 1 and packets that exceed the MTU. */
STAGE route_to_wire(struct packet *p, const struct route *r)
{
	if (unlikely(p->options || p->ttl <= 1) || !route_fits(p, r) || route_splits_fragments(p, r->mtu))
		return PASS;
	return route_redirect(p, r, r->resolved && neigh_lease_valid());
}
