/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which way a packet leaves the node, and how it gets there without the host's stack. */
#pragma once

#include "lib/net/ttl.h"
#include "lib/net/packet.h"

/* AF_INET and AF_INET6 of the kernel's socket ABI, for bpf_redirect_neigh. */
enum family {
	FAMILY_IPV4 = 2,
	FAMILY_IPV6 = 10,
};

/*
 * The route to an address, NULL for the world. The first length with a match wins: the agent puts longer
 * prefixes before the shorter ones that hold them.
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

/* The same as a copy, for what is not in a hurry: *to is not set for the world, whose kind is ROUTE_UNKNOWN. */
GLOBAL_FN enum route_kind route_copy(const struct address *a, struct route *to)
{
	const struct route *r = a ? route_of(a) : 0;

	if (!r || !to)
		return ROUTE_UNKNOWN;
	*to = *r;
	return r->kind;
}

/* What lies behind an address, where nothing else of its route is asked for. */
GLOBAL_FN enum route_kind route_kind_of(const struct address *a)
{
	const struct route *r = a ? route_of(a) : 0;

	return r ? r->kind : ROUTE_UNKNOWN;
}

/* The route of an address that is a prefix of its own: every node's InternalIPs are, and pods of this node that are left of a former range. */
static __always_inline const struct route *route_of_host(const struct address *a)
{
	struct route_key key = {.prefix_len = 128, .address = *a};

	return bpf_map_lookup_elem(&routes, &key);
}

/*
 * Whether what SCTP has put into one GSO packet fits the device of a way: packets of different sizes, which the kernel alone can
 * tell (Linux 5.12). Who carries less than the device, further on, tells it by itself.
 */
static __noinline bool route_gso_fits(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 allowed = 0;

	return !bpf_check_mtu(skb, ifindex, &allowed, 0, BPF_MTU_CHK_SEGS);
}

/*
 * Whether every packet on the wire fits a way. A GSO packet is cut into segments of gso_size
 * bytes of payload; what cannot be told cheaply (extension headers before TCP) counts as too big, since the
 * stack, which gets such packets, decides it exactly.
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

/* Whether packets of the size that the device allows from which this one comes would not fit a way. */
static __noinline bool route_below_device_mtu(struct __sk_buff *skb, __u32 mtu)
{
	__u32 allowed = 0;

	bpf_check_mtu(skb, 0, &allowed, 0, 0); /* Linux 5.12; whatever it says, it tells the device's MTU */
	return !allowed || allowed > mtu;
}

/*
 * Whether this fragment would take another way than others of its packet, which may not fit. The stack may put them together
 * before it cuts them again (connection tracking does), and would wait for those that have gone ahead.
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

/* The agent follows the neighbour table now; if not, what it wrote about neighbours may be out of date. */
static __always_inline bool neigh_lease_valid(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&neigh_lease, &zero);

	return until && bpf_ktime_get_coarse_ns() < *until;
}

/* Gives the packet to the device of *r: with the link-layer header from there if `known`, else by the kernel's neighbour table. */
STAGE route_redirect(struct packet *p, const struct route *r, bool known)
{
	struct bpf_redir_neigh hop = {};

	ttl_decrement(p);
	if (likely(known)) {
		__builtin_memcpy(p->eth->h_dest, r->next_hop_mac, ETH_ALEN);
		__builtin_memcpy(p->eth->h_source, r->uplink_mac, ETH_ALEN);
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

/* Out through the uplink to the next node. */
STAGE route_to_wire(struct packet *p, const struct route *r)
{
	if (unlikely(p->options || p->ttl <= 1) || !route_fits(p, r) || route_splits_fragments(p, r->mtu))
		return PASS;
	return route_redirect(p, r, r->resolved && neigh_lease_valid());
}
