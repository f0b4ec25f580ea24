/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet in driver memory, before the kernel allocates an skb: parsing and rewriting without helpers. Checksums
 * are updated incrementally, so a wrong checksum stays wrong.
 */
#pragma once

#include "lib/net/checksum.h"
#include "lib/net/packet.h"
#include "lib/net/transport.h"
#include "lib/net/ttl.h"

/* Pointers are valid as long as the packet keeps its size. Kept small: it is on the stack of every callee. */
struct frame {
	struct ethhdr *eth;
	__sum16 *check; /* of TCP or UDP */
	__u32 length;	/* of the IP packet, bytes */
	__u8 ttl;
	bool ipv4;
};

static __always_inline struct iphdr *frame_ipv4(const struct frame *f)
{
	return (void *)(f->eth + 1);
}

static __always_inline struct ipv6hdr *frame_ipv6(const struct frame *f)
{
	return (void *)(f->eth + 1);
}

/*
 * Updates a checksum incrementally (RFC 1624). `diff` is the sum of the new words and of the complements of the
 * old ones.
 */
static __always_inline void sum_change(__sum16 *check, __u64 diff)
{
	*check = checksum_fold(checksum_fold64(diff + (__u16) ~*check));
}

static __always_inline __u64 sum_replaced(__u32 old, __u32 new)
{
	return (__u64) new + (__u32)~old;
}

/* Parses TCP and UDP. Returns false for other protocols and truncated headers. */
static __always_inline bool frame_parse_transport(struct frame *f, struct transport *t, void *header, void *end)
{
	const __u32 payload = f->length - (f->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	struct udp_header *udp = header;
	struct tcp_header *tcp = header;

	if (t->tuple.protocol == PROTOCOL_TCP) {
		if ((void *)(tcp + 1) > end || payload < sizeof(*tcp))
			return false;
		f->check = &tcp->check;
		t->flags = tcp->flags;
		t->tuple.source_port = tcp->source;
		t->tuple.destination_port = tcp->destination;
		return true;
	}
	if (t->tuple.protocol != PROTOCOL_UDP || (void *)(udp + 1) > end || payload < sizeof(*udp))
		return false;
	f->check = &udp->check;
	t->tuple.source_port = udp->source;
	t->tuple.destination_port = udp->destination;
	return true;
}

/*
 * Parses a frame. Returns false for what tc and the kernel stack handle: other protocols, fragments, options,
 * extension headers, malformed headers, and frames that are not addressed to `mac`, the address of this device.
 */
static __always_inline bool frame_parse(struct frame *f, struct transport *t, struct xdp_md *ctx, const __u8 *mac)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	const __u16 *to = (__u16 *)eth->h_dest, *own = (const __u16 *)mac;
	void *header = eth + 1;

	if (header + sizeof(struct iphdr) > end || (to[0] ^ own[0]) | (to[1] ^ own[1]) | (to[2] ^ own[2]))
		return false;
	f->eth = eth;
	t->offset = t->end = t->fragment = 0;
	t->kind = TRANSPORT_PORTS;
	t->flags = t->in_fragments = t->reply = 0;
	t->tuple.padding[0] = t->tuple.padding[1] = t->tuple.padding[2] = 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = header;

		if (ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(0x3fff) ||
		    bpf_ntohs(ip->tot_len) < sizeof(*ip))
			return false;
		f->ipv4 = true;
		f->ttl = ip->ttl;
		f->length = bpf_ntohs(ip->tot_len);
		t->tuple.protocol = ip->protocol;
		address_from_ipv4(&t->tuple.source, ip->saddr);
		address_from_ipv4(&t->tuple.destination, ip->daddr);
		return frame_parse_transport(f, t, ip + 1, end);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end || ip->version != 6)
			return false;
		f->ipv4 = false;
		f->ttl = ip->hop_limit;
		f->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
		t->tuple.protocol = ip->nexthdr;
		address_from_ipv6(&t->tuple.source, &ip->saddr);
		address_from_ipv6(&t->tuple.destination, &ip->daddr);
		if (address_is_ipv4(&t->tuple.source) || address_is_ipv4(&t->tuple.destination))
			return false;
		return frame_parse_transport(f, t, ip + 1, end);
	}
	return false;
}

/* Decrements the TTL, which must be above 1, and updates the IPv4 header checksum (RFC 1141). */
static __always_inline void frame_decrement_ttl(struct frame *f)
{
	if (f->ipv4) {
		ttl_decrement_ipv4(frame_ipv4(f));
		return;
	}
	frame_ipv6(f)->hop_limit--;
}

/* Writes the ports of the NAT entry. Returns their checksum difference. */
static __always_inline __u64 frame_set_ports(struct ports *ports, const struct nat_entry *entry)
{
	__u64 diff = (__u64)(__u16)~ports->source + entry->source_port + (__u16)~ports->destination +
		     entry->destination_port;

	ports->source = entry->source_port;
	ports->destination = entry->destination_port;
	return diff;
}

static __always_inline __u64 frame_nat_ipv4(struct frame *f, const struct nat_entry *entry)
{
	struct iphdr *ip = frame_ipv4(f);
	__u64 diff =
		sum_replaced(ip->saddr, entry->source.word[3]) + sum_replaced(ip->daddr, entry->destination.word[3]);

	ip->saddr = entry->source.word[3];
	ip->daddr = entry->destination.word[3];
	sum_change(&ip->check, diff);
	return diff + frame_set_ports((void *)(ip + 1), entry);
}

static __always_inline __u64 frame_nat_ipv6(struct frame *f, const struct nat_entry *entry)
{
	struct ipv6hdr *ip = frame_ipv6(f);
	__be32 *old = (__be32 *)&ip->saddr;
	__u64 diff = 0;

	for (int i = 0; i < 4; i++) {
		diff += sum_replaced(old[i], entry->source.word[i]) +
			sum_replaced(old[4 + i], entry->destination.word[i]);
		old[i] = entry->source.word[i];
		old[4 + i] = entry->destination.word[i];
	}
	return diff + frame_set_ports((void *)(ip + 1), entry);
}

/* Rewrites the packet by its NAT entry. A UDP checksum of 0 means none (RFC 768) and stays 0. */
static __always_inline void frame_nat(struct frame *f, const struct nat_entry *entry, __u8 protocol)
{
	__u64 diff = f->ipv4 ? frame_nat_ipv4(f, entry) : frame_nat_ipv6(f, entry);

	if (protocol == PROTOCOL_UDP && !*f->check)
		return;
	sum_change(f->check, diff);
	if (protocol == PROTOCOL_UDP && !*f->check)
		*f->check = 0xffff;
}
