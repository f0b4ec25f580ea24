/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's conntrack, for --services=kube-proxy. Connections that the kernel stack translates must pass
 * through it in both directions, or their replies are not translated back.
 */
#pragma once

#include "config.h"
#include "lib/net/icmp.h"
#include "lib/net/transport.h"

/* A part of enum ip_conntrack_status (include/uapi/linux/netfilter/nf_conntrack_common.h). */
enum kernel_ct_status {
	KERNEL_CT_SNAT = 1 << 4,
	KERNEL_CT_DNAT = 1 << 5,
};

/* Kernel type; the offset is relocated at load. */
struct nf_conn {
	unsigned long status;
} __attribute__((preserve_access_index));

/* The first size of this struct (Linux 5.18), which later kernels accept; since 6.11 it has 16 bytes. */
struct bpf_ct_opts {
	__s32 netns_id; /* negative: the namespace of the packet's device */
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};
_Static_assert(sizeof(struct bpf_ct_opts) == 12, "the kernel distinguishes versions by size");

/* Linux 5.18 with CONFIG_NF_CONNTRACK. Weak: pruned where config_kube_proxy is off. */
extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple_size,
					 struct bpf_ct_opts *opts, __u32 opts_size) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *connection) __weak __ksym;

/* Whether bpf_skb_ct_lookup supports the protocol. */
static __always_inline bool kernel_ct_supports(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP;
}

/*
 * Whether the kernel stack translates the connection of this tuple, in either direction. The helper accepts two
 * sizes only.
 */
static __always_inline bool kernel_ct_translates(struct packet *p, struct bpf_sock_tuple *tuple, __u32 size,
						 __u8 protocol)
{
	struct bpf_ct_opts opts = {.netns_id = -1, .l4proto = protocol};
	struct nf_conn *connection = bpf_skb_ct_lookup(p->skb, tuple, size, &opts, sizeof(opts));
	unsigned long status;

	if (likely(!connection))
		return false;
	status = connection->status;
	bpf_ct_release(connection);
	return status & (KERNEL_CT_SNAT | KERNEL_CT_DNAT);
}

static __always_inline bool kernel_ct_translates_ipv4(struct packet *p, __be32 source, __be32 destination,
						      struct ports ports, __u8 protocol)
{
	struct bpf_sock_tuple tuple = {};

	tuple.ipv4.saddr = source;
	tuple.ipv4.daddr = destination;
	tuple.ipv4.sport = ports.source;
	tuple.ipv4.dport = ports.destination;
	return kernel_ct_translates(p, &tuple, sizeof(tuple.ipv4), protocol);
}

static __always_inline bool kernel_ct_translates_ipv6(struct packet *p, const struct address *source,
						      const struct address *destination, struct ports ports,
						      __u8 protocol)
{
	struct bpf_sock_tuple tuple = {};

	__builtin_memcpy(tuple.ipv6.saddr, source, sizeof(tuple.ipv6.saddr));
	__builtin_memcpy(tuple.ipv6.daddr, destination, sizeof(tuple.ipv6.daddr));
	tuple.ipv6.sport = ports.source;
	tuple.ipv6.dport = ports.destination;
	return kernel_ct_translates(p, &tuple, sizeof(tuple.ipv6), protocol);
}

/* Whether a packet may be the first of its connection. Every UDP packet may. */
static __always_inline bool kernel_ct_may_initiate(struct packet *p, __u32 offset, __u8 protocol)
{
	__u8 flags;

	if (protocol != PROTOCOL_TCP)
		return true;
	return !bpf_skb_load_bytes(p->skb, offset + __builtin_offsetof(struct transport_header, flags), &flags,
				   sizeof(flags)) &&
	       (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/*
 * An ICMP error quotes a packet of the receiver. If the kernel stack translated that packet, it must translate the
 * quotation back. Looks up the reply tuple.
 */
STAGE kernel_ct_check_icmp(struct packet *p)
{
	const __u32 offset = ETH_HLEN + sizeof(struct iphdr);
	struct {
		struct icmp_header icmp;
		struct iphdr ip;
		struct ports ports;
	} error;

	if (offset + sizeof(error) > packet_end(p->skb, 0, p->ip4->tot_len) ||
	    bpf_skb_load_bytes(p->skb, offset, &error, sizeof(error)))
		return NEXT; /* no ports quoted: no error, or not translatable */
	switch (error.icmp.type) {
	case ICMP_UNREACHABLE:
	case ICMP_TIME_EXCEEDED:
	case ICMP_PARAMETER_PROBLEM:
		break;
	default:
		return NEXT;
	}
	if (!kernel_ct_supports(error.ip.protocol) || error.ip.ihl != 5)
		return PASS;
	return kernel_ct_translates_ipv4(p, error.ip.daddr, error.ip.saddr,
					 (struct ports){error.ports.destination, error.ports.source}, error.ip.protocol)
		       ? PASS
		       : NEXT;
}

/* Likewise for ICMPv6. */
STAGE kernel_ct_check_icmpv6(struct packet *p)
{
	const __u32 offset = ETH_HLEN + sizeof(struct ipv6hdr);
	struct {
		struct icmp_header icmp;
		struct ipv6hdr ip;
		struct ports ports;
	} error;

	if (offset + sizeof(error) > packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len) ||
	    bpf_skb_load_bytes(p->skb, offset, &error, sizeof(error)) || error.icmp.type >= ICMPV6_ERRORS_END)
		return NEXT;
	if (!kernel_ct_supports(error.ip.nexthdr))
		return PASS;
	return kernel_ct_translates_ipv6(p, (struct address *)&error.ip.daddr, (struct address *)&error.ip.saddr,
					 (struct ports){error.ports.destination, error.ports.source}, error.ip.nexthdr)
		       ? PASS
		       : NEXT;
}

/*
 * A pod may use one source port towards a Service and towards its backend. Replies of both connections look alike,
 * so the second connection starts in the kernel stack, which gives it another port.
 */
static __noinline enum verdict kernel_ct_check_ipv4(struct packet *p)
{
	const __be16 fragment = bpf_htons(0x3fff); /* more fragments, or an offset (RFC 791, 3.1) */
	const __u32 offset = ETH_HLEN + sizeof(struct iphdr);
	__be32 source = p->source.word[3], destination = p->destination.word[3];
	__u8 protocol = p->ip4->protocol;
	struct ports ports;

	if (p->ip4->frag_off & fragment)
		return PASS; /* the kernel stack reassembles it */
	if (protocol == PROTOCOL_ICMP)
		return kernel_ct_check_icmp(p);
	if (!kernel_ct_supports(protocol) || offset + sizeof(ports) > packet_end(p->skb, 0, p->ip4->tot_len) ||
	    bpf_skb_load_bytes(p->skb, offset, &ports, sizeof(ports)))
		return PASS;
	if (kernel_ct_translates_ipv4(p, source, destination, ports, protocol))
		return PASS;
	if (!kernel_ct_may_initiate(p, offset, protocol))
		return NEXT;
	ports = (struct ports){ports.destination, ports.source};
	return kernel_ct_translates_ipv4(p, destination, source, ports, protocol) ? PASS : NEXT;
}

static __noinline enum verdict kernel_ct_check_ipv6(struct packet *p)
{
	const __u32 offset = ETH_HLEN + sizeof(struct ipv6hdr);
	__u8 protocol = p->ip6->nexthdr;
	struct ports ports;

	if (protocol == PROTOCOL_ICMPV6)
		return kernel_ct_check_icmpv6(p);
	if (!kernel_ct_supports(protocol) ||
	    offset + sizeof(ports) > packet_end(p->skb, sizeof(struct ipv6hdr), p->ip6->payload_len) ||
	    bpf_skb_load_bytes(p->skb, offset, &ports, sizeof(ports)))
		return PASS; /* extension headers, and protocols without lookup */
	if (kernel_ct_translates_ipv6(p, &p->source, &p->destination, ports, protocol))
		return PASS;
	if (!kernel_ct_may_initiate(p, offset, protocol))
		return NEXT;
	ports = (struct ports){ports.destination, ports.source};
	return kernel_ct_translates_ipv6(p, &p->destination, &p->source, ports, protocol) ? PASS : NEXT;
}

/*
 * NEXT for packets that may be redirected, PASS for those that the kernel stack translates or may translate.
 * Packets with options go to the kernel stack in any case.
 */
STAGE kernel_ct_check(struct packet *p)
{
	if (!config_kube_proxy || unlikely(p->options))
		return NEXT;
	return p->protocol == bpf_htons(ETH_P_IP) ? kernel_ct_check_ipv4(p) : kernel_ct_check_ipv6(p);
}
