/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers to packets that go nowhere, made of the packets themselves: a Service without endpoints refuses, and what
 * does not fit the way to its backend is told so. The answer leaves through the device that brought the packet.
 */
#pragma once

#include "checksum.h"
#include "sender.h"
#include "transport.h"
#include "tunnel.h"

struct tcp_header {
	__be16 source, destination;
	__be32 sequence, acknowledgement;
	__u8 data_offset; /* in words, in the upper half */
	__u8 flags;
	__be16 window;
	__sum16 check;
	__be16 urgent;
};
_Static_assert(sizeof(struct tcp_header) == 20, "a TCP header without options has 20 bytes");

/* TTL, hop limit and class of answers: those of the kernel's own (IANA; RFC 1812, 4.3.2.5: internetwork control). */
enum refusal_header {
	REFUSAL_HOPS = 64,
	REFUSAL_CONTROL = 0xc0,
	REFUSAL_DONT_FRAGMENT = 0x4000,
};

/* An ICMP error is at most this long: RFC 1812, 4.3.2.3 and RFC 4443, 2.4 (c). */
enum refusal_size {
	REFUSAL_MAX_IPV4 = 576,
	REFUSAL_MAX_IPV6 = 1280,
};

/*
 * Errors of each enum refusal_kind that are sent in a second: to a pod of this node as many as the kernel sends as a whole (icmp_msgs_per_sec),
 * to each of those outside a tenth, since that may be anybody whose address somebody else writes.
 */
enum refusal_limit {
	REFUSALS_TO_POD = 1000,
	REFUSALS_OUTSIDE = 100,
};

/* In the place of an MTU: the packet has no hop left (time exceeded). 0: the port is unreachable. */
#define REFUSAL_EXPIRED 0x10000

struct icmp_error_header {
	__u8 type, code;
	__sum16 check;
	__be16 unused, mtu; /* of ICMPv6, one field */
};

struct refusal_ipv4 {
	struct iphdr ip;
	struct icmp_error_header icmp;
};

struct refusal_ipv6 {
	struct ipv6hdr ip;
	struct icmp_error_header icmp;
};

/* RFC 1122, 3.2.2 and RFC 4443, 2.4 (e): nobody may be meant who is not one host. */
static __always_inline bool refusal_may_go_to(const struct address *a)
{
	return !address_stays_on_link(a) && !(address_is_ipv4(a) && !a->word[3]);
}

/* Whether who has sent the packet may be sent another error of a kind. Without the counter nothing is sent. */
static __noinline bool refusal_allowed(struct packet *p, enum refusal_kind kind)
{
	struct refusal_key key = {.sender = sender_of(p->skb, p->program, &p->source), .kind = kind};
	__u64 now = bpf_ktime_get_coarse_ns();
	struct refusal_rate *rate = bpf_map_lookup_elem(&refusals, &key);

	if (!rate) {
		struct refusal_rate first = {now, 1};

		return !bpf_map_update_elem(&refusals, &key, &first, BPF_ANY);
	}
	if (now - rate->since >= 1000000000) {
		rate->since = now;
		rate->sent = 0;
	}
	if (rate->sent >= (key.sender.outside ? REFUSALS_OUTSIDE : REFUSALS_TO_POD))
		return false;
	__sync_fetch_and_add(&rate->sent, 1);
	return true;
}

/* Back to the link-layer address that it came from. */
static __always_inline long refusal_turn_frame(struct __sk_buff *skb)
{
	__u8 from[2 * ETH_ALEN], to[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, from, sizeof(from)))
		return -1;
	__builtin_memcpy(to, from + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(to + ETH_ALEN, from, ETH_ALEN);
	return bpf_skb_store_bytes(skb, 0, to, sizeof(to), 0);
}

/* The header of an answer from `to` to `from`, as those addresses were in the packet that it answers. */
static __always_inline void refusal_ipv4_header(struct iphdr *ip, __be32 from, __be32 to, __u8 protocol, __u32 length)
{
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tos = protocol == PROTOCOL_ICMP ? REFUSAL_CONTROL : 0,
		.tot_len = bpf_htons(length),
		.frag_off = bpf_htons(REFUSAL_DONT_FRAGMENT),
		.ttl = REFUSAL_HOPS,
		.protocol = protocol,
		.saddr = to,
		.daddr = from,
	};
	ip->check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
}

static __always_inline void refusal_ipv6_header(struct ipv6hdr *ip, const struct ipv6hdr *packet, __u8 protocol,
						__u32 payload)
{
	*ip = (struct ipv6hdr){
		.version = 6,
		.payload_len = bpf_htons(payload),
		.nexthdr = protocol,
		.hop_limit = REFUSAL_HOPS,
		.saddr = packet->daddr,
		.daddr = packet->saddr,
	};
}

/*
 * The reset of a connection that nobody has (RFC 9293, 3.5.2, group 1): its sequence number is what the segment
 * acknowledges; if that acknowledges nothing, 0, and it acknowledges the segment, of which `length` bytes are data.
 */
static __always_inline void refusal_reset_header(struct tcp_header *reset, const struct tcp_header *tcp, __u32 length)
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

/* Cuts the packet to `length` bytes. It has at least as many; the driver's sum over it, if any, is not kept. */
static __always_inline long refusal_cut(struct __sk_buff *skb, __u32 length)
{
	/* Growing, unlike cutting, lets the kernel forget CHECKSUM_COMPLETE; either ends GSO and makes it linear. */
	return bpf_skb_change_tail(skb, length - 1, 0) ? -1 : bpf_skb_change_tail(skb, length, 0);
}

/* Turns a TCP segment over IPv4, whose header is without options, into the reset of its connection. */
SEPARATE int refusal_reset_ipv4(struct __sk_buff *skb)
{
	bool pending = checksum_pending(skb);
	struct tcp_header tcp;
	struct {
		struct iphdr ip;
		struct tcp_header tcp;
	} answer;
	struct iphdr ip;
	__wsum sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp)) || tcp.flags & TCP_RST)
		return -1;
	refusal_reset_header(&answer.tcp, &tcp, bpf_ntohs(ip.tot_len) - sizeof(ip) - (tcp.data_offset >> 4) * 4);
	refusal_ipv4_header(&answer.ip, ip.saddr, ip.daddr, PROTOCOL_TCP, sizeof(answer));
	sum = checksum_pseudo_ipv4(ip.saddr, ip.daddr, PROTOCOL_TCP, sizeof(tcp));
	if (pending)
		answer.tcp.check = ~checksum_fold(sum);
	else
		answer.tcp.check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&answer.tcp, sizeof(tcp), sum));
	if (refusal_cut(skb, ETH_HLEN + sizeof(answer)) || refusal_turn_frame(skb))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &answer, sizeof(answer), 0);
}

/* The same over IPv6, without extension headers. */
SEPARATE int refusal_reset_ipv6(struct __sk_buff *skb)
{
	bool pending = checksum_pending(skb);
	struct tcp_header tcp;
	struct {
		struct ipv6hdr ip;
		struct tcp_header tcp;
	} answer;
	struct ipv6hdr ip;
	__wsum sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.nexthdr != PROTOCOL_TCP ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &tcp, sizeof(tcp)) || tcp.flags & TCP_RST)
		return -1;
	refusal_reset_header(&answer.tcp, &tcp, bpf_ntohs(ip.payload_len) - (tcp.data_offset >> 4) * 4);
	refusal_ipv6_header(&answer.ip, &ip, PROTOCOL_TCP, sizeof(tcp));
	sum = checksum_pseudo_ipv6(&answer.ip, PROTOCOL_TCP, sizeof(tcp));
	if (pending)
		answer.tcp.check = ~checksum_fold(sum);
	else
		answer.tcp.check = checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&answer.tcp, sizeof(tcp), sum));
	if (refusal_cut(skb, ETH_HLEN + sizeof(answer)) || refusal_turn_frame(skb))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &answer, sizeof(answer), 0);
}

/*
 * Cuts the packet to what an error quotes of it, at most `limit` bytes from the IP header on, and gives their sum; below
 * 0 when that is not possible. `end` is where the IP header says that the packet ends; `transport` and `check`
 * are where its transport header and that one's checksum are.
 */
SEPARATE __s64 refusal_quote(struct __sk_buff *skb, __u32 end, __u32 limit, __u32 transport, __u32 check)
{
	__u32 length = skb->len < end ? skb->len : end, at;
	__sum16 pending = 0;
	__u8 block[32];
	__wsum sum = 0;

	if (length < transport + 8)
		return -1;
	/* Whoever finishes the checksum makes the sum from there on the complement of what is in its place now. */
	if (check && checksum_pending(skb) && (bpf_skb_load_bytes(skb, check, &pending, sizeof(pending)) || !pending))
		return -1;
	if (length > ETH_HLEN + limit)
		length = ETH_HLEN + limit;
	/* Zeros do not count, so the packet is summed in whole blocks; growing drops the driver's sum. */
	if (bpf_skb_change_tail(skb, length, 0) || bpf_skb_change_tail(skb, length + sizeof(block), 0))
		return -1;
	for (at = ETH_HLEN; at < ETH_HLEN + REFUSAL_MAX_IPV6 && at < length; at += sizeof(block)) {
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
 * Turns a packet over IPv4 into an error about it. `transport` and `check` as for refusal_quote. `mtu` is what
 * fits the way, REFUSAL_EXPIRED, or 0: the port is unreachable.
 */
SEPARATE int refusal_error_ipv4(struct __sk_buff *skb, __u32 transport, __u32 check, __u32 mtu)
{
	bool expired = mtu == REFUSAL_EXPIRED, too_big = mtu && !expired;
	struct refusal_ipv4 answer;
	struct iphdr ip;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.frag_off & bpf_htons(0x1fff))
		return -1;
	sum = refusal_quote(skb, ETH_HLEN + bpf_ntohs(ip.tot_len), REFUSAL_MAX_IPV4 - sizeof(answer), transport, check);
	if (sum < 0 || bpf_skb_adjust_room(skb, sizeof(answer), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	refusal_ipv4_header(&answer.ip, ip.saddr, ip.daddr, PROTOCOL_ICMP, skb->len - ETH_HLEN);
	answer.icmp = (struct icmp_error_header){
		.type = expired ? 11 : 3, /* time exceeded; destination unreachable */
		/* In transit; fragmentation needed (RFC 1191, 4); port unreachable. */
		.code = expired	  ? 0
			: too_big ? 4
				  : 3,
		.mtu = too_big ? bpf_htons(mtu) : 0,
	};
	answer.icmp.check =
		checksum_fold(bpf_csum_diff(0, 0, (__be32 *)&answer.icmp, sizeof(answer.icmp), (__wsum)sum));
	return bpf_skb_store_bytes(skb, ETH_HLEN, &answer, sizeof(answer), 0) ? -1 : refusal_turn_frame(skb);
}

/* The same over IPv6. */
SEPARATE int refusal_error_ipv6(struct __sk_buff *skb, __u32 transport, __u32 check, __u32 mtu)
{
	bool expired = mtu == REFUSAL_EXPIRED, too_big = mtu && !expired;
	struct refusal_ipv6 answer;
	struct ipv6hdr ip;
	__wsum pseudo;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return -1;
	sum = refusal_quote(skb, ETH_HLEN + sizeof(ip) + bpf_ntohs(ip.payload_len), REFUSAL_MAX_IPV6 - sizeof(answer),
			    transport, check);
	if (sum < 0 || bpf_skb_adjust_room(skb, sizeof(answer), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	refusal_ipv6_header(&answer.ip, &ip, PROTOCOL_ICMPV6, skb->len - ETH_HLEN - sizeof(ip));
	answer.icmp = (struct icmp_error_header){
		/* Time exceeded; packet too big; destination unreachable. */
		.type = expired	  ? 3
			: too_big ? 2
				  : 1,
		.code = mtu ? 0 : 4, /* in transit; none; port unreachable */
		.mtu = too_big ? bpf_htons(mtu) : 0,
	};
	pseudo = checksum_pseudo_ipv6(&answer.ip, PROTOCOL_ICMPV6, bpf_ntohs(answer.ip.payload_len));
	answer.icmp.check = checksum_fold(
		bpf_csum_diff(0, 0, (__be32 *)&answer.icmp, sizeof(answer.icmp), checksum_add((__wsum)sum, pseudo)));
	return bpf_skb_store_bytes(skb, ETH_HLEN, &answer, sizeof(answer), 0) ? -1 : refusal_turn_frame(skb);
}

/* Sends the answer, which the packet now is, where the packet came from: into the pod, onto the wire, through the tunnel. */
STAGE refusal_send(struct packet *p)
{
	const struct route *way;

	if (p->program != PROGRAM_FROM_TUNNEL) {
		p->action = bpf_redirect(p->skb->ifindex, 0);
		return REDIRECT;
	}
	if ((p->protocol == bpf_htons(ETH_P_IP) ? packet_parse_ipv4(p) : packet_parse_ipv6(p)) != NEXT)
		return drop(p, DROP_UNANSWERED);
	way = route_of(&p->destination);
	if (!way || way->kind != ROUTE_TUNNEL || !tunnel_enter(p, way))
		return drop(p, DROP_UNANSWERED);
	p->action = bpf_redirect(way->ifindex, 0);
	return REDIRECT;
}

/* Where the checksum of TCP and of UDP is in the frame; 0 for other protocols. */
static __always_inline __u32 refusal_check_offset(const struct transport *t)
{
	switch (t->tuple.protocol) {
	case PROTOCOL_TCP:
		return t->offset + 16;
	case PROTOCOL_UDP:
		return t->offset + 6;
	}
	return 0;
}

/* Whether the packet may be answered with an error, and is. `mtu` as in refusal_error_ipv4. */
STAGE refuse_with_error(struct packet *p, const struct transport *t, __u32 mtu)
{
	__u32 check = refusal_check_offset(t);
	int failed;

	if (t->kind != TRANSPORT_PORTS || !refusal_may_go_to(&p->source) ||
	    !refusal_allowed(p, mtu && mtu != REFUSAL_EXPIRED ? REFUSAL_TOO_BIG : REFUSAL_OTHER))
		return drop(p, DROP_UNANSWERED);
	if (p->protocol == bpf_htons(ETH_P_IP))
		failed = refusal_error_ipv4(p->skb, t->offset, check, mtu);
	else
		failed = refusal_error_ipv6(p->skb, t->offset, check, mtu);
	return failed ? drop(p, DROP_UNANSWERED) : refusal_send(p);
}

/*
 * Refuses a packet to a Service that has no endpoints: a reset for TCP, port unreachable for anything else. Ends the
 * journey: the packet is the answer then, or dropped where nothing may be answered (resets, later fragments).
 */
STAGE refuse(struct packet *p, const struct transport *t)
{
	bool ipv4 = p->protocol == bpf_htons(ETH_P_IP);
	int failed;

	if (t->tuple.protocol != PROTOCOL_TCP)
		return refuse_with_error(p, t, 0);
	if (t->kind != TRANSPORT_PORTS || t->flags & TCP_RST || !refusal_may_go_to(&p->source) ||
	    t->offset != ETH_HLEN + (ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return drop(p, DROP_UNANSWERED);
	/* Resets are no longer than what they answer, so nobody gains by having them sent to somebody: no limit. */
	failed = ipv4 ? refusal_reset_ipv4(p->skb) : refusal_reset_ipv6(p->skb);
	return failed ? drop(p, DROP_UNANSWERED) : refusal_send(p);
}

/*
 * Tells the sender that its packet goes no further: fragmentation needed or packet too big, with the MTU of the way that its
 * translation would take, or time exceeded (REFUSAL_EXPIRED). Call it before anything is rewritten.
 */
STAGE refuse_further(struct packet *p, const struct transport *t, __u32 mtu)
{
	return refuse_with_error(p, t, mtu);
}
