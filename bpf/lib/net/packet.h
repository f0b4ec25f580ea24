/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet that a program handles, and the parser that fills it. */
#pragma once

#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include "config.h"
#include "lib/net/address.h"
#include "lib/net/ethertype.h"

/* IP protocol numbers (IANA). */
enum ip_protocol {
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_SCTP = 132,
};

/*
 * The state that a program passes from stage to stage. Helpers that may move the packet invalidate the pointers
 * into it.
 */
struct packet {
	struct __sk_buff *skb;
	struct ethhdr *eth;
	union {
		struct iphdr *ip4;
		struct ipv6hdr *ip6;
	};
	void *end;
	struct address source, destination;
	__be16 protocol; /* ETH_P_IP, ETH_P_IPV6 or another Ethernet type; ETH_P_8021Q for every tagged frame */
	__u8 ttl;	 /* TTL or hop limit */
	bool options;	 /* has options that only the kernel stack interprets */
	__u8 program;	 /* enum program */
	__u8 reason;	 /* enum drop_reason */
	bool local;	 /* redirected into a local pod */
	int action;
};

/* Whether the packet came out of a tunnel. */
static __always_inline bool packet_is_of_tunnel(const struct packet *p)
{
	return p->program == PROGRAM_FROM_TUNNEL || p->program == PROGRAM_FROM_WIREGUARD ||
	       p->program == PROGRAM_FROM_IPSEC;
}

static __always_inline enum verdict drop(struct packet *p, enum drop_reason reason)
{
	p->reason = reason;
	return DROP;
}

/*
 * Whether `number` < `other`, both at most 255. Computed from the sign bit of the difference: a comparison would
 * compile to a branch, and the verifier would walk the rest of the program for each outcome.
 */
static __always_inline bool packet_is_below(__u32 number, __u32 other)
{
	barrier_var(number);
	barrier_var(other); /* keeps the compiler from emitting a branch */
	return (number - other) >> 31;
}

/* Makes `bytes` behind the Ethernet header readable and sets p->eth. Returns false if the packet is shorter. */
static __always_inline bool packet_has(struct packet *p, __u32 bytes)
{
	void *data = (void *)(long)p->skb->data;

	p->end = (void *)(long)p->skb->data_end;
	if (unlikely(data + ETH_HLEN + bytes > p->end)) {
		/* Headers may be in paged fragments of the skb. Pull them into the linear area. */
		if (bpf_skb_pull_data(p->skb, ETH_HLEN + bytes))
			return false;
		data = (void *)(long)p->skb->data;
		p->end = (void *)(long)p->skb->data_end;
		if (data + ETH_HLEN + bytes > p->end)
			return false;
	}
	p->eth = data;
	return true;
}

/* Addresses the frame to the next hop of a route. */
static __always_inline void packet_set_macs(struct ethhdr *eth, const struct route *route)
{
	__builtin_memcpy(eth->h_dest, route->next_hop_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, route->uplink_mac, ETH_ALEN);
}

/*
 * The end of the IP packet, from the start of the frame. Bytes behind it are Ethernet padding, which the kernel
 * trims; never read them. `length` is the length field of the IP header, `header` the bytes that this field does
 * not count. A BIG TCP packet (Linux 5.19) has length 0 and ends with its frame.
 */
static __always_inline __u32 packet_end(const struct __sk_buff *skb, __u32 header, __be16 length)
{
	if (unlikely(!length && skb->gso_size))
		return skb->len;
	return ETH_HLEN + header + bpf_ntohs(length);
}

STAGE packet_parse_ipv4(struct packet *p)
{
	struct iphdr *ip;

	if (!packet_has(p, sizeof(*ip)))
		return drop(p, DROP_TRUNCATED);
	ip = (void *)p->eth + ETH_HLEN;
	if (unlikely(ip->version != 4 || ip->ihl < 5))
		return drop(p, DROP_MALFORMED);
	p->ip4 = ip;
	p->ttl = ip->ttl;
	p->options = packet_is_below(5, ip->ihl);
	address_from_ipv4(&p->source, ip->saddr);
	address_from_ipv4(&p->destination, ip->daddr);
	return NEXT;
}

STAGE packet_parse_ipv6(struct packet *p)
{
	struct ipv6hdr *ip;

	if (!packet_has(p, sizeof(*ip)))
		return drop(p, DROP_TRUNCATED);
	ip = (void *)p->eth + ETH_HLEN;
	if (ip->version != 6)
		return drop(p, DROP_MALFORMED);
	p->ip6 = ip;
	p->ttl = ip->hop_limit;
	p->options = packet_is_below(ip->nexthdr, 1); /* hop-by-hop options: every router reads them (RFC 8200, 4.3) */
	address_from_ipv6(&p->source, &ip->saddr);
	address_from_ipv6(&p->destination, &ip->daddr);
	/* IPv4-mapped addresses are invalid on the wire (RFC 4942, 2.2) and would match IPv4 entries of the maps. */
	if (address_is_ipv4(&p->source) || address_is_ipv4(&p->destination))
		return drop(p, DROP_MALFORMED);
	return NEXT;
}

/*
 * Makes skb->protocol that of the Ethernet header, for what a pod sends by a netkit or macvlan device. Moves the packet:
 * p->eth is not valid afterwards.
 */
STAGE packet_check_protocol(struct packet *p)
{
	if (unlikely(!packet_has(p, 0)))
		return drop(p, DROP_TRUNCATED);
	if (unlikely(p->eth->h_proto != p->skb->protocol && !ethertype_set(p->skb)))
		return drop(p, DROP_INTERNAL_ERROR);
	return NEXT;
}

/*
 * Parses the network header. Other protocols than IP return NEXT with only p->protocol set. So do VLAN frames: the
 * kernel has moved the tag to skb metadata and skb->protocol is the inner protocol, but the packet belongs to
 * another link and keeps its tag when it is redirected.
 */
STAGE packet_parse(struct packet *p)
{
	if (config_netkit && p->program == PROGRAM_FROM_POD) {
		enum verdict v = packet_check_protocol(p);

		if (v != NEXT)
			return v;
	}
	p->protocol = unlikely(p->skb->vlan_present) ? bpf_htons(ETH_P_8021Q) : p->skb->protocol;
	if (likely(p->protocol == bpf_htons(ETH_P_IP)))
		return packet_parse_ipv4(p);
	if (p->protocol == bpf_htons(ETH_P_IPV6))
		return packet_parse_ipv6(p);
	return NEXT;
}

/* The transport header of a packet, and the end of the packet; offsets from the start of the frame. */
struct packet_transport {
	void *header;
	__u32 start, end;
	__u8 protocol; /* of IPv6, also that of an extension header */
};

/* Finds the transport header without reading it. Returns false for fragments and options of IPv4. */
static __always_inline bool packet_find_transport(const struct packet *p, struct packet_transport *at)
{
	if (p->protocol == bpf_htons(ETH_P_IP)) {
		if (unlikely(p->options || p->ip4->frag_off & bpf_htons(0x3fff)))
			return false;
		at->protocol = p->ip4->protocol;
		at->header = p->ip4 + 1;
		at->start = ETH_HLEN + sizeof(struct iphdr);
		at->end = packet_end(p->skb, 0, p->ip4->tot_len);
		return true;
	}
	at->protocol = p->ip6->nexthdr;
	at->header = p->ip6 + 1;
	at->start = ETH_HLEN + sizeof(struct ipv6hdr);
	at->end = packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len);
	return true;
}

/* Tests the pointer instead of the protocol: the verifier does not track that one implies the other. */
static __always_inline bool packet_is_ip(const struct packet *p)
{
	return p->ip4;
}
