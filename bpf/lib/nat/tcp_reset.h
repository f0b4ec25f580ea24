/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns a TCP segment into the reset of its connection. */
#pragma once

#include "lib/nat/reply_header.h"

/*
 * The reset for a connection that does not exist (RFC 9293, 3.5.2, group 1). With ACK, its sequence number is the
 * acknowledged one; else 0, and it acknowledges the segment, `length` bytes of which are data.
 */
static __always_inline void icmp_reply_reset_header(struct tcp_header *reset, const struct tcp_header *tcp,
						    __u32 length)
{
	bool acknowledges = tcp->flags & TCP_ACK;

	*reset = (struct tcp_header){
		.source = tcp->destination,
		.destination = tcp->source,
		.data_offset = sizeof(*reset) / 4 << 4,
		.flags = TCP_RST,
	};
	if (acknowledges) {
		reset->sequence = tcp->acknowledgement;
		return;
	}
	length += !!(tcp->flags & TCP_SYN) + !!(tcp->flags & TCP_FIN);
	reset->flags |= TCP_ACK;
	reset->acknowledgement = bpf_htonl(bpf_ntohl(tcp->sequence) + length);
}

/* Over IPv4, without IP options. */
GLOBAL_FN int icmp_reply_reset_ipv4(struct __sk_buff *skb)
{
	bool pending = checksum_pending(skb);
	struct tcp_header tcp;
	struct {
		struct iphdr ip;
		struct tcp_header tcp;
	} reply;
	struct iphdr ip;
	__wsum sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp)) || tcp.flags & TCP_RST)
		return -1;
	icmp_reply_reset_header(&reply.tcp, &tcp, bpf_ntohs(ip.tot_len) - sizeof(ip) - (tcp.data_offset >> 4) * 4);
	icmp_reply_ipv4_header(&reply.ip, ip.saddr, ip.daddr, PROTOCOL_TCP, sizeof(reply));
	sum = checksum_pseudo_ipv4(ip.saddr, ip.daddr, PROTOCOL_TCP, sizeof(tcp));
	if (pending)
		reply.tcp.check = ~checksum_fold(sum);
	else
		reply.tcp.check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&reply.tcp, sizeof(tcp), sum));
	if (icmp_reply_trim(skb, ETH_HLEN + sizeof(reply)) || icmp_reply_swap_macs(skb))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &reply, sizeof(reply), 0);
}

/* Over IPv6, without extension headers. */
GLOBAL_FN int icmp_reply_reset_ipv6(struct __sk_buff *skb)
{
	bool pending = checksum_pending(skb);
	struct tcp_header tcp;
	struct {
		struct ipv6hdr ip;
		struct tcp_header tcp;
	} reply;
	struct ipv6hdr ip;
	__wsum sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.nexthdr != PROTOCOL_TCP ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp)) || tcp.flags & TCP_RST)
		return -1;
	icmp_reply_reset_header(&reply.tcp, &tcp, bpf_ntohs(ip.payload_len) - (tcp.data_offset >> 4) * 4);
	icmp_reply_ipv6_header(&reply.ip, &ip, PROTOCOL_TCP, sizeof(tcp));
	sum = checksum_pseudo_ipv6(&reply.ip, PROTOCOL_TCP, sizeof(tcp));
	if (pending)
		reply.tcp.check = ~checksum_fold(sum);
	else
		reply.tcp.check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&reply.tcp, sizeof(tcp), sum));
	if (icmp_reply_trim(skb, ETH_HLEN + sizeof(reply)) || icmp_reply_swap_macs(skb))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &reply, sizeof(reply), 0);
}
