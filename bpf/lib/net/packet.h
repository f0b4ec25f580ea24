/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet while one program handles it, and the parser that fills it. */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include "lib/net/address.h"
#include "lib/net/verdict.h"

/* IP protocol numbers (IANA). */
enum ip_protocol {
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_SCTP = 132,
};

/* The only carrier of state inside a program. Pointers into the packet are gone after any helper that may move it. */
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
	bool options;	 /* carries what only the host's stack interprets */
	enum program program;
	enum drop_reason reason;
	int action;
};

static __always_inline enum verdict drop(struct packet *p, enum drop_reason reason)
{
	p->reason = reason;
	return DROP;
}

/*
 * Whether a number is below another one, neither of them above 255, as the sign of their difference. As a comparison it would be a branch, and the
 * verifier would walk all that follows once with false and once with true.
 */
static __always_inline bool packet_is_below(__u32 number, __u32 other)
{
	barrier_var(number);
	barrier_var(other); /* else the compiler makes a branch of it */
	return (number - other) >> 31;
}

/* Sets eth, and makes `bytes` behind the Ethernet header readable. False when the packet is not that long. */
static __always_inline bool packet_has(struct packet *p, __u32 bytes)
{
	void *data = (void *)(long)p->skb->data;

	p->end = (void *)(long)p->skb->data_end;
	if (unlikely(data + ETH_HLEN + bytes > p->end)) {
		/* Headers may lie in fragments of the skb: move them into its linear part. */
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

/*
 * Where an IP packet ends, from the beginning of the frame. What lies behind that is no part of it, as Ethernet's padding, and the stack cuts it
 * off: it must not be read. `length` is what the header says, and `header` how much of it that leaves out. A GSO packet of more than
 * 64 KiB says 0 and ends with its frame (BIG TCP, Linux 5.19).
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
	p->options =
		packet_is_below(ip->nexthdr, 1); /* hop-by-hop options: every router looks at them (RFC 8200, 4.3) */
	address_from_ipv6(&p->source, &ip->saddr);
	address_from_ipv6(&p->destination, &ip->daddr);
	/* Mapped addresses have no place in a packet (RFC 4942, 2.2): it would meet the entries of IPv4. */
	if (address_is_ipv4(&p->source) || address_is_ipv4(&p->destination))
		return drop(p, DROP_MALFORMED);
	return NEXT;
}

/*
 * Fills *p from the network header. Packets that are not IP come out with NEXT and their protocol alone.
 * So do packets of a VLAN: the kernel has taken the tag out of the frame and skb->protocol is what lies
 * behind it, but the packet belongs to another link and takes its tag along wherever it is redirected.
 */
STAGE packet_parse(struct packet *p)
{
	p->protocol = unlikely(p->skb->vlan_present) ? bpf_htons(ETH_P_8021Q) : p->skb->protocol;
	if (likely(p->protocol == bpf_htons(ETH_P_IP)))
		return packet_parse_ipv4(p);
	if (p->protocol == bpf_htons(ETH_P_IPV6))
		return packet_parse_ipv6(p);
	return NEXT;
}

/* Asks for the pointer and not for the protocol: the verifier does not know that the one follows from the other. */
static __always_inline bool packet_is_ip(const struct packet *p)
{
	return p->ip4;
}
