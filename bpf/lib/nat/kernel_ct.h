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

/* Whether the kernel stack translates the connection of these ends, in either direction. */
static __always_inline bool kernel_ct_translates(struct packet *p, bool ipv4, const struct address *source,
						 const struct address *destination, struct ports ports, __u8 protocol)
{
	struct bpf_ct_opts opts = {.netns_id = -1, .l4proto = protocol};
	struct bpf_sock_tuple tuple = {};
	__u32 size = transport_lookup_tuple(&tuple, ipv4, source, ports.source, destination, ports.destination);
	struct nf_conn *connection = bpf_skb_ct_lookup(p->skb, &tuple, size, &opts, sizeof(opts));
	unsigned long status;

	if (likely(!connection))
		return false;
	status = connection->status;
	bpf_ct_release(connection);
	return status & (KERNEL_CT_SNAT | KERNEL_CT_DNAT);
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
STAGE kernel_ct_check_icmp(struct packet *p, bool ipv4, const struct packet_transport *at)
{
	struct address source, destination;
	struct ports ports;
	__u8 protocol;
	union {
		struct icmp_header icmp;
		struct {
			struct icmp_header icmp;
			struct iphdr ip;
			struct ports ports;
		} v4;
		struct {
			struct icmp_header icmp;
			struct ipv6hdr ip;
			struct ports ports;
		} v6;
	} error;
	__u32 size = ipv4 ? sizeof(error.v4) : sizeof(error.v6);

	if (at->start + size > at->end || bpf_skb_load_bytes(p->skb, at->start, &error, size) ||
	    !(ipv4 ? icmp_is_error_ipv4(error.icmp.type) : error.icmp.type < ICMPV6_ERRORS_END))
		return NEXT; /* no ports quoted: no error, or not translatable */
	if (ipv4) {
		protocol = error.v4.ip.ihl == 5 ? error.v4.ip.protocol : 0;
		address_from_ipv4(&source, error.v4.ip.daddr);
		address_from_ipv4(&destination, error.v4.ip.saddr);
		ports = (struct ports){error.v4.ports.destination, error.v4.ports.source};
	} else {
		protocol = error.v6.ip.nexthdr;
		address_from_ipv6(&source, &error.v6.ip.daddr);
		address_from_ipv6(&destination, &error.v6.ip.saddr);
		ports = (struct ports){error.v6.ports.destination, error.v6.ports.source};
	}
	return !kernel_ct_supports(protocol) || kernel_ct_translates(p, ipv4, &source, &destination, ports, protocol)
		       ? PASS
		       : NEXT;
}

/*
 * A pod may use one source port towards a Service and towards its backend. Replies of both connections look alike,
 * so the second connection starts in the kernel stack, which gives it another port.
 */
static __noinline enum verdict kernel_ct_check_connection(struct packet *p)
{
	bool ipv4 = p->protocol == bpf_htons(ETH_P_IP);
	struct packet_transport at;
	struct ports ports;

	if (!packet_find_transport(p, &at))
		return PASS; /* a fragment: the kernel stack reassembles it */
	if (at.protocol == (ipv4 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6))
		return kernel_ct_check_icmp(p, ipv4, &at);
	if (!kernel_ct_supports(at.protocol) || at.start + sizeof(ports) > at.end ||
	    bpf_skb_load_bytes(p->skb, at.start, &ports, sizeof(ports)))
		return PASS; /* extension headers, and protocols without lookup */
	if (kernel_ct_translates(p, ipv4, &p->source, &p->destination, ports, at.protocol))
		return PASS;
	if (!kernel_ct_may_initiate(p, at.start, at.protocol))
		return NEXT;
	ports = (struct ports){ports.destination, ports.source};
	return kernel_ct_translates(p, ipv4, &p->destination, &p->source, ports, at.protocol) ? PASS : NEXT;
}

/*
 * NEXT for packets that may be redirected, PASS for those that the kernel stack translates or may translate.
 * Packets with options go to the kernel stack in any case.
 */
STAGE kernel_ct_check(struct packet *p)
{
	if (!config_kube_proxy || unlikely(p->options))
		return NEXT;
	return kernel_ct_check_connection(p);
}
