/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose address and which port a connection gets that cannot keep its own. */
#pragma once

#include "claim.h"
#include "way.h"

/* The address of the family of `like` that packets get which leave through a device; NULL if it is no uplink or has none. */
static __always_inline const struct address *nat_address(__u32 ifindex, const struct address *like)
{
	const struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	const struct address *a;

	if (!uplink)
		return 0;
	a = address_is_ipv4(like) ? &uplink->ipv4 : &uplink->ipv6;
	return a->word[0] | a->word[1] | a->word[2] | a->word[3] ? a : 0;
}

/*
 * Whether a socket of the node itself uses the port that x->beginning wants, towards the same address and port. Servers of
 * TCP that listen there do no harm: their connections have other ports at the other end. Sockets of SCTP cannot be looked for.
 * `ctx` is that of tc or of XDP.
 */
static __always_inline bool nat_socket_has(void *ctx, const struct tuple *answers)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;
	__u32 size = sizeof(tuple.ipv6);
	bool used;

	if (address_is_ipv4(&answers->source)) {
		size = sizeof(tuple.ipv4);
		tuple.ipv4.saddr = answers->source.word[3];
		tuple.ipv4.daddr = answers->destination.word[3];
		tuple.ipv4.sport = answers->source_port;
		tuple.ipv4.dport = answers->destination_port;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &answers->source, sizeof(tuple.ipv6.saddr));
		__builtin_memcpy(tuple.ipv6.daddr, &answers->destination, sizeof(tuple.ipv6.daddr));
		tuple.ipv6.sport = answers->source_port;
		tuple.ipv6.dport = answers->destination_port;
	}
	if (answers->protocol == PROTOCOL_UDP) {
		socket = bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
		if (socket)
			bpf_sk_release(socket);
		return socket;
	}
	if (answers->protocol != PROTOCOL_TCP)
		return false;
	socket = bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return false;
	used = socket->state != BPF_TCP_LISTEN;
	bpf_sk_release(socket);
	return used;
}

SEPARATE bool nat_port_in_use(struct __sk_buff *skb, const struct tuple *answers)
{
	return answers && nat_socket_has(skb, answers);
}

/* Attempts to get a port, one after the other. */
struct nat_search {
	struct __sk_buff *skb;
	__u32 own_address; /* the connection gets the node's address, which the node's sockets use too */
	enum claim claim;
};

static long nat_search_step(__u32 attempt, struct nat_search *s)
{
	struct translation *x = translation_place();
	struct beginning *b;

	if (!x)
		return 1;
	b = &x->beginning;
	b->to.source_port = connection_port(&b->key, b->to.owner, attempt);
	if (s->own_address && transport_has_ports(b->key.protocol)) {
		connection_turn(&b->other, &b->to, b->key.protocol);
		if (nat_port_in_use(s->skb, &b->other))
			return 0;
	}
	s->claim = connection_claim(connection_attempt_takes(attempt));
	return s->claim != CLAIM_TAKEN;
}

/* Begins x->beginning with a port of the range that translation may use (bpf_loop, Linux 5.17). */
static __always_inline enum claim nat_search(struct __sk_buff *skb, bool own_address)
{
	struct nat_search s = {.skb = skb, .own_address = own_address, .claim = CLAIM_TAKEN};

	bpf_loop(CONNECTION_ATTEMPTS, nat_search_step, &s, 0);
	return s.claim;
}
