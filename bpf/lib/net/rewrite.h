/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rewrites addresses and ports of an skb, and updates every checksum that covers them. */
#pragma once

#include "lib/nat/nat_table.h"
#include "lib/net/checksum.h"
#include "lib/net/packet.h"
#include "lib/net/sctp.h"
#include "lib/net/transport.h"

/* The checksum difference of replacing one address by another. */
static __always_inline __u64 rewrite_address_diff(const struct address *from, const struct address *to)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (__u64)(__u32)~from->word[i] + to->word[i];
	return sum;
}

/* The checksum difference of replacing one port by another. */
static __always_inline __u64 rewrite_port_diff(__be16 from, __be16 to)
{
	return (__u64)(__u16)~from + to;
}

/* Offset of the checksum in the transport header. */
static __always_inline __u32 rewrite_checksum_offset(__u8 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return 16;
	return protocol == PROTOCOL_UDP ? 6 : 2;
}

/* Rewrites SCTP ports and their CRC32c, which does not cover addresses. */
static __always_inline bool rewrite_sctp(struct __sk_buff *skb, const struct transport *t, const struct nat_entry *to)
{
	if (t->tuple.source_port == to->source_port && t->tuple.destination_port == to->destination_port)
		return true;
	return !sctp_set_ports(skb, t->offset, to->source_port | (__u32)to->destination_port << 16,
			       address_is_ipv4(&t->tuple.source), t->in_fragments);
}

/*
 * Updates the checksum of TCP, UDP or ICMP. With CHECKSUM_PARTIAL the field covers the pseudo header only, so
 * addresses and ports are updated by separate calls, as the helper requires. A UDP checksum of 0 means that there
 * is none (RFC 768) and stays 0.
 */
static __always_inline bool rewrite_checksum(struct __sk_buff *skb, const struct transport *t,
					     const struct nat_entry *to, __wsum addresses)
{
	__u32 at = t->offset + rewrite_checksum_offset(t->tuple.protocol);
	__u64 flags = t->tuple.protocol == PROTOCOL_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u64 ports;

	if (unlikely(t->tuple.protocol == PROTOCOL_SCTP))
		return rewrite_sctp(skb, t, to);
	if (t->tuple.protocol != PROTOCOL_ICMP && bpf_l4_csum_replace(skb, at, 0, addresses, flags | BPF_F_PSEUDO_HDR))
		return false;
	ports = rewrite_port_diff(t->tuple.source_port, to->source_port) +
		rewrite_port_diff(t->tuple.destination_port, to->destination_port);
	return !bpf_l4_csum_replace(skb, at, 0, checksum_fold64(ports), flags);
}

/* Writes the ports, or the ICMP echo identifier. The caller has made these bytes writable. */
static __always_inline bool rewrite_ports(struct packet *p, const struct transport *t, const struct nat_entry *to)
{
	__u32 at = t->offset;
	struct transport_header *h;

	barrier_var(at); /* the verifier must see the bound of the sum */
	if (at > 255)
		return false;
	h = (void *)p->eth + at;
	if ((void *)h + TRANSPORT_OTHER_LENGTH > p->end)
		return false;
	if (unlikely(transport_is_icmp(t->tuple.protocol))) {
		h->identifier = transport_echo_identifier(to);
		return true;
	}
	h->source = to->source_port;
	h->destination = to->destination_port;
	return true;
}

/* Rewrites the IPv4 header. Makes it and `ports` bytes behind it writable. */
static __always_inline bool rewrite_ipv4(struct packet *p, const struct nat_entry *to, __wsum addresses, __u32 ports)
{
	struct iphdr *ip;

	if (!packet_has(p, sizeof(*ip) + ports))
		return false;
	ip = p->ip4 = (void *)p->eth + ETH_HLEN;
	ip->saddr = to->source.word[3];
	ip->daddr = to->destination.word[3];
	ip->check = checksum_changed(ip->check, addresses);
	return true;
}

/* Rewrites the IPv6 header likewise. */
static __always_inline bool rewrite_ipv6(struct packet *p, const struct nat_entry *to, __wsum addresses, __u32 ports)
{
	struct ipv6hdr *ip;

	bpf_csum_update(p->skb, addresses);
	if (!packet_has(p, sizeof(*ip) + ports))
		return false;
	ip = p->ip6 = (void *)p->eth + ETH_HLEN;
	__builtin_memcpy(&ip->saddr, &to->source, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, &to->destination, sizeof(ip->daddr));
	return true;
}

/*
 * Rewrites the addresses and ports of the packet to those of *to and updates the pointers of *p. A later fragment
 * has addresses only. On failure returns false; the packet may be half rewritten, so drop it.
 *
 * A driver may have summed the whole packet (CHECKSUM_COMPLETE). Over IPv4 the change of the header checksum
 * cancels out that of the addresses, and bpf_l4_csum_replace accounts for the transport checksum. Over IPv6
 * nothing cancels out the addresses, so bpf_csum_update adds them.
 */
static __always_inline bool rewrite(struct packet *p, const struct transport *t, const struct nat_entry *to)
{
	__wsum addresses = checksum_fold64(rewrite_address_diff(&t->tuple.source, &to->source) +
					   rewrite_address_diff(&t->tuple.destination, &to->destination));
	bool whole = t->kind == TRANSPORT_PORTS;
	__u32 ports = whole ? TRANSPORT_OTHER_LENGTH : 0;

	if (likely(whole) && !rewrite_checksum(p->skb, t, to, addresses))
		return false;
	if (p->protocol == bpf_htons(ETH_P_IP) ? !rewrite_ipv4(p, to, addresses, ports)
					       : !rewrite_ipv6(p, to, addresses, ports))
		return false;
	return !whole || rewrite_ports(p, t, to);
}

/* The drop reason of a failed rewrite. */
static __always_inline enum drop_reason rewrite_problem(const struct transport *t)
{
	return t->in_fragments ? DROP_NAT_UNSUPPORTED_PROTOCOL : DROP_TRUNCATED; /* see sctp_length_of_chunks */
}
