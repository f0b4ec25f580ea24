/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NAT of ICMP errors. An error quotes the packet as a router or the receiver saw it; the original sender knows
 * other addresses and ports. So the error and the quotation are translated (RFC 5508, 4.2), as packets in the
 * direction of the error.
 */
#pragma once

#include "lib/net/checksum.h"
#include "lib/net/icmp.h"
#include "lib/net/sctp.h"

/* Offset of the TCP checksum. Quotations may be shorter. */
#define ICMP_QUOTED_TCP_CHECK 16

/* Updates the quoted SCTP checksum for a change of the ports, if it is quoted. Returns 0 on success. */
static __always_inline int icmp_nat_sctp(struct __sk_buff *skb, const struct icmp_error_quote *e, __u32 ports,
					 __wsum *changed)
{
	const __u32 at = e->transport + __builtin_offsetof(struct sctp_header, check);
	bool ipv4 = address_is_ipv4(&e->tuple.source);
	__be32 old, new;
	__be16 length;
	__u32 end;

	if (!ports || at + sizeof(old) > e->end || bpf_skb_load_bytes(skb, at, &old, sizeof(old)) || !old ||
	    bpf_skb_load_bytes(skb, e->ip + (ipv4 ? 2 : 4), &length, sizeof(length)))
		return 0;
	end = e->ip + (ipv4 ? 0 : sizeof(struct ipv6hdr)) + bpf_ntohs(length);
	new = old ^ sctp_check_change(ports, end - e->transport);
	*changed = bpf_csum_diff(&old, sizeof(old), &new, sizeof(new), *changed);
	return bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0);
}

/*
 * Rewrites the quoted ports and the checksum that covers them. `addresses` is the checksum difference of the
 * quoted addresses, as far as that checksum covers them. Adds the difference for the ICMP checksum to *changed.
 * Returns 0 on success.
 */
static __noinline int icmp_nat_quoted(struct __sk_buff *skb, const struct icmp_error_quote *e,
				      const struct nat_entry *entry, __wsum addresses, __wsum *changed)
{
	__u8 protocol = e->tuple.protocol;
	union icmp_quoted old, new;
	__sum16 check[2] = {};
	__wsum diff;

	if (bpf_skb_load_bytes(skb, e->transport, &old, sizeof(old)))
		return -1;
	new = old;
	if (transport_has_ports(protocol)) {
		new.ports.source = entry->destination_port;
		new.ports.destination = entry->source_port;
	} else {
		new.echo.id = transport_echo_identifier(entry);
	}
	diff = bpf_csum_diff(old.word, sizeof(old), new.word, sizeof(new), addresses);
	if (protocol == PROTOCOL_UDP) {
		/* 0 over IPv4: no checksum (RFC 768) */
		if (old.udp.check) {
			new.udp.check = checksum_changed(old.udp.check, diff);
			if (!new.udp.check)
				new.udp.check = 0xffff;
		}
	} else if (protocol == PROTOCOL_SCTP) {
		if (icmp_nat_sctp(skb, e, old.word[0] ^ new.word[0], changed))
			return -1;
	} else if (protocol != PROTOCOL_TCP) {
		new.echo.check = checksum_changed(old.echo.check, diff);
	} else if (e->transport + ICMP_QUOTED_TCP_CHECK + sizeof(check[0]) <= e->end &&
		   !bpf_skb_load_bytes(skb, e->transport + ICMP_QUOTED_TCP_CHECK, &check[0], sizeof(check[0]))) {
		__be32 before = check[0], after;

		check[1] = checksum_changed(check[0], diff);
		after = check[1];
		*changed = bpf_csum_diff(&before, sizeof(before), &after, sizeof(after), *changed);
		if (bpf_skb_store_bytes(skb, e->transport + ICMP_QUOTED_TCP_CHECK, &check[1], sizeof(check[1]), 0))
			return -1;
	}
	*changed = bpf_csum_diff(old.word, sizeof(old), new.word, sizeof(new), *changed);
	return bpf_skb_store_bytes(skb, e->transport, &new, sizeof(new), 0);
}

/*
 * Every change of the packet is balanced by one of its checksums, so skb->csum (CHECKSUM_COMPLETE) stays valid. If
 * the quoted destination itself sent the error, its address is translated too; routers keep theirs.
 */
GLOBAL_FN int icmp_nat_ipv4(struct __sk_buff *skb, const struct icmp_error_quote *e, const struct nat_entry *entry)
{
	struct iphdr outer, ip;
	__be32 old[2], new[2];
	__wsum changed, diff;

	if (!e || !entry || bpf_skb_load_bytes(skb, ETH_HLEN, &outer, sizeof(outer)) ||
	    bpf_skb_load_bytes(skb, e->ip, &ip, sizeof(ip)))
		return -1;
	old[0] = outer.saddr;
	old[1] = outer.daddr;
	new[0] = outer.saddr == ip.daddr ? entry->source.word[3] : outer.saddr;
	new[1] = entry->destination.word[3];
	outer.saddr = new[0];
	outer.daddr = new[1];
	outer.check = checksum_changed(outer.check, bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0));

	old[0] = ip.saddr;
	old[1] = ip.daddr;
	new[0] = entry->destination.word[3];
	new[1] = entry->source.word[3];
	diff = bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0);
	ip.saddr = new[0];
	ip.daddr = new[1];
	old[0] = ip.check;
	ip.check = checksum_changed(ip.check, diff);
	new[0] = ip.check;
	changed = bpf_csum_diff(old, sizeof(old[0]), new, sizeof(new[0]), diff);
	if (icmp_nat_quoted(skb, e, entry, e->tuple.protocol == PROTOCOL_ICMP ? 0 : diff, &changed) ||
	    bpf_skb_store_bytes(skb, e->ip, &ip, sizeof(ip), 0) ||
	    bpf_l4_csum_replace(skb, e->icmp + __builtin_offsetof(struct icmp_header, check), 0, changed, 0))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN, &outer, sizeof(outer), 0);
}

/* Likewise for ICMPv6, whose checksum covers the outer addresses as well. */
GLOBAL_FN int icmp_nat_ipv6(struct __sk_buff *skb, const struct icmp_error_quote *e, const struct nat_entry *entry)
{
	struct address old[2], new[2];
	const __u32 addresses = ETH_HLEN + __builtin_offsetof(struct ipv6hdr, saddr);
	__wsum changed, diff;
	__u32 quoted;

	if (!e || !entry)
		return -1;
	quoted = e->ip + __builtin_offsetof(struct ipv6hdr, saddr);
	if (bpf_skb_load_bytes(skb, quoted, old, sizeof(old)))
		return -1;
	new[0] = entry->destination;
	new[1] = entry->source;
	diff = bpf_csum_diff((__be32 *)old, sizeof(old), (__be32 *)new, sizeof(new), 0);
	changed = diff;
	if (bpf_skb_store_bytes(skb, quoted, new, sizeof(new), 0) || icmp_nat_quoted(skb, e, entry, diff, &changed) ||
	    bpf_skb_load_bytes(skb, addresses, old, sizeof(old)))
		return -1;
	new[0] = address_equals(&old[0], &e->tuple.source) ? entry->source : old[0];
	new[1] = entry->destination;
	changed = bpf_csum_diff((__be32 *)old, sizeof(old), (__be32 *)new, sizeof(new), changed);
	if (bpf_skb_store_bytes(skb, addresses, new, sizeof(new), 0))
		return -1;
	return bpf_l4_csum_replace(skb, e->icmp + __builtin_offsetof(struct icmp_header, check), 0, changed, 0);
}

/* Translates an error and its quotation by the entry of e->tuple. With NEXT, *p is parsed again. */
STAGE icmp_nat(struct packet *p, const struct icmp_error_quote *e, const struct nat_entry *entry)
{
	int failed =
		p->protocol == bpf_htons(ETH_P_IP) ? icmp_nat_ipv4(p->skb, e, entry) : icmp_nat_ipv6(p->skb, e, entry);

	if (failed)
		return drop(p, DROP_MALFORMED);
	return p->protocol == bpf_htons(ETH_P_IP) ? packet_parse_ipv4(p) : packet_parse_ipv6(p);
}
