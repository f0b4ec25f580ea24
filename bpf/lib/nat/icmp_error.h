/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns a packet into an ICMP error about it. */
#pragma once

#include "lib/nat/reply_header.h"

/* As `mtu`: time exceeded instead of packet too big. 0 means port unreachable. */
#define ICMP_REPLY_TTL_EXCEEDED 0x10000

struct icmp_error_header {
	__u8 type, code;
	__sum16 check;
	__be16 unused, mtu; /* of ICMPv6, one field */
};

struct icmp_reply_ipv4 {
	struct iphdr ip;
	struct icmp_error_header icmp;
};

struct icmp_reply_ipv6 {
	struct ipv6hdr ip;
	struct icmp_error_header icmp;
};

/* Maximum length of an ICMP error: RFC 1812, 4.3.2.3 and RFC 4443, 2.4 (c). */
enum icmp_reply_size {
	ICMP_REPLY_MAX_IPV4 = 576,
	ICMP_REPLY_MAX_IPV6 = 1280,
};

/*
 * Trims the packet to the quotation, at most `limit` bytes from the IP header on, and returns its sum, or a
 * negative value on failure. `end` is the end of the IP packet; `transport` and `check` are the offsets of the
 * transport header and its checksum.
 */
GLOBAL_FN __s64 icmp_reply_quote(struct __sk_buff *skb, __u32 end, __u32 limit, __u32 transport, __u32 check)
{
	__u32 length = skb->len < end ? skb->len : end, at;
	__sum16 pending = 0;
	__u8 block[32];
	__wsum sum = 0;

	if (length < transport + 8)
		return -1;
	/*
	 * When the checksum is completed later, the sum from the transport header on is the complement of the
	 * present field.
	 */
	if (check && checksum_pending(skb) && (bpf_skb_load_bytes(skb, check, &pending, sizeof(pending)) || !pending))
		return -1;
	if (length > ETH_HLEN + limit)
		length = ETH_HLEN + limit;
	/* Zeros do not change the sum, so whole blocks are summed. Growing the skb ends CHECKSUM_COMPLETE. */
	if (bpf_skb_change_tail(skb, length, 0) || bpf_skb_change_tail(skb, length + sizeof(block), 0))
		return -1;
	for (at = ETH_HLEN; at < ETH_HLEN + ICMP_REPLY_MAX_IPV6 && at < length; at += sizeof(block)) {
		if (pending && at + sizeof(block) > transport)
			break;
		if (bpf_skb_load_bytes(skb, at, block, sizeof(block)))
			return -1;
		sum = bpf_csum_diff(0, 0, (__be32 *)block, sizeof(block), sum);
	}
	for (int word = 0; word < 8 && pending && at < transport; word++, at += 4) {
		if (bpf_skb_load_bytes(skb, at, block, 4))
			return -1;
		sum = bpf_csum_diff(0, 0, (__be32 *)block, 4, sum);
	}
	if (pending)
		sum = checksum_add(sum, (__u16)~pending);
	if (bpf_skb_change_tail(skb, length, 0))
		return -1;
	return sum;
}

/*
 * Turns an IPv4 packet into an ICMP error. `transport` and `check` as in icmp_reply_quote; `mtu` is that of the
 * route, ICMP_REPLY_TTL_EXCEEDED, or 0 for port unreachable.
 */
GLOBAL_FN int icmp_reply_error_ipv4(struct __sk_buff *skb, __u32 transport, __u32 check, __u32 mtu)
{
	bool expired = mtu == ICMP_REPLY_TTL_EXCEEDED, too_big = mtu && !expired;
	struct icmp_reply_ipv4 reply;
	struct iphdr ip;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.frag_off & bpf_htons(0x1fff))
		return -1;
	sum = icmp_reply_quote(skb, ETH_HLEN + bpf_ntohs(ip.tot_len), ICMP_REPLY_MAX_IPV4 - sizeof(reply), transport,
			       check);
	if (sum < 0 || bpf_skb_adjust_room(skb, sizeof(reply), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	icmp_reply_ipv4_header(&reply.ip, ip.saddr, ip.daddr, PROTOCOL_ICMP, skb->len - ETH_HLEN);
	reply.icmp = (struct icmp_error_header){
		.type = expired ? 11 : 3, /* time exceeded; destination unreachable */
		/* In transit; fragmentation needed (RFC 1191, 4); port unreachable. */
		.code = expired	  ? 0
			: too_big ? 4
				  : 3,
		.mtu = too_big ? bpf_htons(mtu) : 0,
	};
	reply.icmp.check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&reply.icmp, sizeof(reply.icmp), (__wsum)sum));
	return bpf_skb_store_bytes(skb, ETH_HLEN, &reply, sizeof(reply), 0) ? -1 : icmp_reply_swap_macs(skb);
}

/* Likewise for IPv6. */
GLOBAL_FN int icmp_reply_error_ipv6(struct __sk_buff *skb, __u32 transport, __u32 check, __u32 mtu)
{
	bool expired = mtu == ICMP_REPLY_TTL_EXCEEDED, too_big = mtu && !expired;
	struct icmp_reply_ipv6 reply;
	struct ipv6hdr ip;
	__wsum pseudo;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return -1;
	sum = icmp_reply_quote(skb, ETH_HLEN + sizeof(ip) + bpf_ntohs(ip.payload_len),
			       ICMP_REPLY_MAX_IPV6 - sizeof(reply), transport, check);
	if (sum < 0 || bpf_skb_adjust_room(skb, sizeof(reply), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	icmp_reply_ipv6_header(&reply.ip, &ip, PROTOCOL_ICMPV6, skb->len - ETH_HLEN - sizeof(ip));
	reply.icmp = (struct icmp_error_header){
		/* Time exceeded; packet too big; destination unreachable. */
		.type = expired	  ? 3
			: too_big ? 2
				  : 1,
		.code = mtu ? 0 : 4, /* in transit; none; port unreachable */
		.mtu = too_big ? bpf_htons(mtu) : 0,
	};
	pseudo = checksum_pseudo_ipv6(&reply.ip, PROTOCOL_ICMPV6, bpf_ntohs(reply.ip.payload_len));
	reply.icmp.check = checksum_fold(
		bpf_csum_diff(0, 0, (__be32 *)&reply.icmp, sizeof(reply.icmp), checksum_add((__wsum)sum, pseudo)));
	return bpf_skb_store_bytes(skb, ETH_HLEN, &reply, sizeof(reply), 0) ? -1 : icmp_reply_swap_macs(skb);
}
