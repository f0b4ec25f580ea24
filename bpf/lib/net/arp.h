/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ARP (RFC 826) and neighbour discovery (RFC 4861). */
#pragma once

#include "lib/net/packet.h"

/* ARP for IPv4 over Ethernet. */
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_size, protocol_size;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

/* Length of a frame with it: at least that of the shortest Ethernet frame, without the checksum. */
#define ARP_FRAME 60

/* Types of ICMPv6 (IANA). */
enum nd_type {
	ND_ROUTER_SOLICITATION = 133,
	ND_ROUTER_ADVERTISEMENT = 134,
	ND_NEIGHBOUR_SOLICITATION = 135,
	ND_NEIGHBOUR_ADVERTISEMENT = 136,
	ND_REDIRECT = 137,
};

/* Hop limit of neighbour discovery: nothing that was forwarded has it (RFC 4861, 3.1). */
#define ND_HOP_LIMIT 255

/* Length of a neighbour solicitation or advertisement with one option, the MAC or a nonce (RFC 7527), in bytes. */
#define ND_LENGTH 32

static __always_inline bool mac_equals(const __u8 *a, const __u8 *b)
{
	__u32 difference = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		difference |= a[i] ^ b[i];
	return !difference;
}

/* Whether a MAC addresses a group: a broadcast or a multicast. */
static __always_inline bool mac_is_group(const __u8 *mac)
{
	return mac[0] & 1;
}

/*
 * Whether a packet is a neighbour solicitation or advertisement right behind the IPv6 header, not forwarded, and too short
 * for other data: plaintext where nothing else may be, since MACs are found by it.
 */
GLOBAL_FN bool nd_is_of_neighbours(struct __sk_buff *skb)
{
	struct ipv6hdr ip;
	__u8 type;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &type, sizeof(type)))
		return false;
	return ip.nexthdr == PROTOCOL_ICMPV6 && ip.hop_limit == ND_HOP_LIMIT &&
	       bpf_ntohs(ip.payload_len) <= ND_LENGTH &&
	       (type == ND_NEIGHBOUR_SOLICITATION || type == ND_NEIGHBOUR_ADVERTISEMENT);
}

/* Reads ARP for IPv4 over Ethernet. Returns NULL for other ARP; p->eth is then invalid. */
static __always_inline const struct arp *arp_of(struct packet *p)
{
	const struct arp *arp;

	if (!packet_has(p, sizeof(*arp)))
		return 0;
	arp = (void *)p->eth + ETH_HLEN;
	if (arp->hardware != bpf_htons(1) || arp->protocol != bpf_htons(ETH_P_IP) || arp->hardware_size != ETH_ALEN ||
	    arp->protocol_size != sizeof(arp->sender))
		return 0;
	return arp;
}

/*
 * Reads neighbour discovery in an IPv6 packet: *type is 0 if there is none right behind the header, and *target is
 * that of a neighbour solicitation or advertisement.
 */
STAGE nd_read(struct packet *p, __u8 *type, struct address *target)
{
	const __u32 header = ETH_HLEN + sizeof(struct ipv6hdr);

	*type = 0;
	if (p->ip6->nexthdr != PROTOCOL_ICMPV6)
		return NEXT;
	if (bpf_skb_load_bytes(p->skb, header, type, sizeof(*type)))
		return drop(p, DROP_TRUNCATED);
	if (*type < ND_ROUTER_SOLICITATION || *type > ND_REDIRECT)
		*type = 0;
	if (*type != ND_NEIGHBOUR_SOLICITATION && *type != ND_NEIGHBOUR_ADVERTISEMENT)
		return NEXT;
	/* Behind type, code, checksum and flags. */
	return bpf_skb_load_bytes(p->skb, header + 8, target, sizeof(*target)) ? drop(p, DROP_TRUNCATED) : NEXT;
}

/* The link-local address that a device derives from its MAC (RFC 4291, appendix A). */
static __always_inline void nd_link_local(struct address *a, const __u8 *mac)
{
	a->word[0] = bpf_htonl(0xfe800000);
	a->word[1] = 0;
	a->word[2] = bpf_htonl((__u32)(mac[0] ^ 2) << 24 | mac[1] << 16 | mac[2] << 8 | 0xff);
	a->word[3] = bpf_htonl(0xfeu << 24 | mac[3] << 16 | mac[4] << 8 | mac[5]);
}
