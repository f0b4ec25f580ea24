/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Other addresses and ports in an skb, with all that has to follow them. */
#pragma once

#include "lib/net/checksum.h"
#include "lib/nat/nat_table.h"
#include "lib/net/packet.h"
#include "lib/net/sctp.h"
#include "lib/net/transport.h"

/* What checksums change by when one address takes the place of another. */
static __always_inline __u64 rewrite_address_diff(const struct address *from, const struct address *to)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (__u64)(__u32)~from->word[i] + to->word[i];
	return sum;
}

/* The same for a port. */
static __always_inline __u64 rewrite_port_diff(__be16 from, __be16 to)
{
	return (__u64)(__u16)~from + to;
}

static __always_inline __wsum rewrite_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

/* Where the checksum is in the transport header. */
static __always_inline __u32 rewrite_checksum_offset(__u8 protocol)
{
	if (protocol == PROTOCOL_TCP)
		return 16;
	return protocol == PROTOCOL_UDP ? 6 : 2;
}

/* The same of SCTP, with the ports. Addresses are not in it. */
static __always_inline bool rewrite_sctp(struct __sk_buff *skb, const struct transport *t, const struct nat_entry *to)
{
	if (t->tuple.source_port == to->source_port && t->tuple.destination_port == to->destination_port)
		return true;
	return !sctp_set_ports(skb, t->offset, to->source_port | (__u32)to->destination_port << 16,
			       address_is_ipv4(&t->tuple.source), t->in_fragments);
}

/*
 * The checksum of TCP, UDP or ICMP follows the addresses and ports. The kernel's helper knows what may be unfinished: with
 * CHECKSUM_PARTIAL the field covers the addresses only, so they and the ports go separately. UDP's 0 stays 0:
 * there is none (RFC 768).
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
	return !bpf_l4_csum_replace(skb, at, 0, rewrite_fold(ports), flags);
}

/* Ports, or the identifier of ICMP echo. *p has `bytes` behind the Ethernet header. */
static __always_inline bool rewrite_ports(struct packet *p, const struct transport *t, const struct nat_entry *to)
{
	__u32 at = t->offset;
	struct transport_header *h;

	barrier_var(at); /* the verifier has to see the check that follows on what is added */
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

/* The header of IPv4. Makes it writable, and `ports` bytes behind it. */
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

/* The same of IPv6. */
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
 * Gives the packet, whose transport is *t, the addresses and ports of *to. Pointers of *p are those of the result.
 * False if that cannot be, and then the packet may be half done.
 *
 * A driver may have summed up the whole packet (CHECKSUM_COMPLETE). Over IPv4 the header's checksum makes up for the
 * addresses, and the helper follows what the transport's changes by. Over IPv6 that change alone makes up for the addresses:
 * what the helper does is undone. A later fragment has only the addresses.
 */
static __always_inline bool rewrite(struct packet *p, const struct transport *t, const struct nat_entry *to)
{
	__wsum addresses = rewrite_fold(rewrite_address_diff(&t->tuple.source, &to->source) +
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

/* Why it could not be. */
static __always_inline enum drop_reason rewrite_problem(const struct transport *t)
{
	return t->in_fragments ? DROP_NAT_UNSUPPORTED_PROTOCOL : DROP_TRUNCATED; /* see sctp_length_of_chunks */
}
