/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors, and the packet that an error quotes. */
#pragma once

#include "lib/net/fragment.h"
#include "lib/net/packet.h"
#include "lib/net/transport.h"

/*
 * Types of ICMP errors, which quote the offending packet (RFC 792). ICMPv6 errors have types below 128 (RFC 4443,
 * 2.1).
 */
enum icmp_error {
	ICMP_UNREACHABLE = 3,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
	ICMPV6_ERRORS_END = 128,
};

struct icmp_header {
	__u8 type, code;
	__sum16 check;
	__be32 rest;
};

/* An error that quotes TCP, UDP, SCTP or ICMP echo. Offsets count from the start of the frame. */
struct icmp_error_quote {
	struct tuple tuple; /* the quoted packet's tuple reversed: that of packets in the direction of the error */
	__u32 icmp;	    /* the error's ICMP header */
	__u32 ip;	    /* the quoted IP header */
	__u32 transport;    /* the quoted transport header */
	__u32 end;	    /* end of the error, and so of the quotation */
};

/* The first 8 bytes of the quoted transport header. Every error quotes at least these (RFC 792). */
union icmp_quoted {
	struct ports ports;
	struct {
		struct ports ports;
		__be16 length;
		__sum16 check;
	} udp;
	struct {
		__u8 type, code;
		__sum16 check;
		__be16 id, sequence;
	} echo;
	__be32 word[2];
};

static __always_inline bool icmp_is_error_ipv4(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}

/*
 * Fills the ports of the tuple: the quoted ports reversed. An error about an echo request takes the direction of
 * the echo reply.
 */
static __always_inline bool icmp_quoted_ports(struct __sk_buff *skb, struct icmp_error_quote *e)
{
	union icmp_quoted q;

	if (e->transport + sizeof(q) > e->end || bpf_skb_load_bytes(skb, e->transport, &q, sizeof(q)))
		return false;
	switch (e->tuple.protocol) {
	case PROTOCOL_TCP:
	case PROTOCOL_UDP:
	case PROTOCOL_SCTP:
		e->tuple.source_port = q.ports.destination;
		e->tuple.destination_port = q.ports.source;
		return true;
	case PROTOCOL_ICMP:
		transport_set_echo(&e->tuple, q.echo.id, q.echo.type == ICMP_ECHO_REQUEST);
		return q.echo.type == ICMP_ECHO_REQUEST || q.echo.type == ICMP_ECHO_REPLY;
	case PROTOCOL_ICMPV6:
		transport_set_echo(&e->tuple, q.echo.id, q.echo.type == ICMPV6_ECHO_REQUEST);
		return q.echo.type == ICMPV6_ECHO_REQUEST || q.echo.type == ICMPV6_ECHO_REPLY;
	}
	return false;
}

GLOBAL_FN bool icmp_read_ipv4(struct __sk_buff *skb, struct icmp_error_quote *e)
{
	struct {
		struct iphdr outer;
		struct icmp_header icmp;
		struct iphdr ip;
	} error;

	if (!e || bpf_skb_load_bytes(skb, ETH_HLEN, &error, sizeof(error)) || error.outer.protocol != PROTOCOL_ICMP ||
	    error.outer.ihl != 5 || error.outer.frag_off & bpf_htons(FRAGMENT_IPV4_ANY) ||
	    !icmp_is_error_ipv4(error.icmp.type))
		return false;
	/* Quoted packets with IP options and later fragments carry no ports at a known offset. */
	if (error.ip.version != 4 || error.ip.ihl != 5 || error.ip.frag_off & bpf_htons(FRAGMENT_IPV4_OFFSET))
		return false;
	__builtin_memset(e, 0, sizeof(*e));
	address_from_ipv4(&e->tuple.source, error.ip.daddr);
	address_from_ipv4(&e->tuple.destination, error.ip.saddr);
	e->tuple.protocol = error.ip.protocol;
	e->end = packet_end(skb, 0, error.outer.tot_len);
	e->icmp = ETH_HLEN + sizeof(struct iphdr);
	e->ip = e->icmp + sizeof(struct icmp_header);
	e->transport = e->ip + sizeof(struct iphdr);
	return icmp_quoted_ports(skb, e);
}

GLOBAL_FN bool icmp_read_ipv6(struct __sk_buff *skb, struct icmp_error_quote *e)
{
	struct {
		struct icmp_header icmp;
		struct ipv6hdr ip;
	} error;
	struct extension_header fragment;
	struct {
		__be16 length;
		__u8 next, ttl;
	} outer;

	if (!e ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct ipv6hdr, payload_len), &outer,
			       sizeof(outer)) ||
	    outer.next != PROTOCOL_ICMPV6 ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct ipv6hdr), &error, sizeof(error)) ||
	    error.icmp.type >= ICMPV6_ERRORS_END || error.ip.version != 6)
		return false;
	__builtin_memset(e, 0, sizeof(*e));
	address_from_ipv6(&e->tuple.source, &error.ip.daddr);
	address_from_ipv6(&e->tuple.destination, &error.ip.saddr);
	e->tuple.protocol = error.ip.nexthdr;
	e->end = packet_end(skb, sizeof(struct ipv6hdr), outer.length);
	e->icmp = ETH_HLEN + sizeof(struct ipv6hdr);
	e->ip = e->icmp + sizeof(struct icmp_header);
	e->transport = e->ip + sizeof(struct ipv6hdr);
	if (error.ip.nexthdr == IPV6_FRAGMENT) {
		if (e->transport + sizeof(fragment) > e->end ||
		    bpf_skb_load_bytes(skb, e->transport, &fragment, sizeof(fragment)) ||
		    fragment.field & bpf_htons(FRAGMENT_IPV6_OFFSET))
			return false;
		e->tuple.protocol = fragment.next;
		e->transport += sizeof(fragment);
	}
	return icmp_quoted_ports(skb, e);
}

/*
 * Reads an ICMP error and the packet that it quotes. If that belongs to a translated connection, its NAT entry has
 * the key e->tuple.
 */
static __always_inline bool icmp_error_read(struct packet *p, struct icmp_error_quote *e)
{
	return p->protocol == bpf_htons(ETH_P_IP) ? icmp_read_ipv4(p->skb, e) : icmp_read_ipv6(p->skb, e);
}
