/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Allocates a new connection, with another source port if its reply tuple is taken. */
#pragma once

#include "lib/fwd/source.h"
#include "lib/nat/nat_alloc.h"

/* The source of a new connection with a final destination; or a drop reason. */
enum snat {
	SNAT_KEEP = 0,	 /* keep it; another port if the reply tuple is taken */
	SNAT_NODE = -1,	 /* the node address in state->fresh, and a free port */
	SNAT_STACK = -2, /* not translated */
	SNAT_PORT = -3,	 /* keep the address, change the port: the reply tuple would clash */
};

/*
 * Whether a local socket has the reply tuple. Listening TCP sockets do not count: their connections have other
 * remote ports. The kernel has no lookup for SCTP. `ctx` is that of tc or of XDP.
 */
static __always_inline bool snat_socket_has(void *ctx, const struct tuple *reply_tuple)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size = transport_lookup_tuple(&tuple, address_is_ipv4(&reply_tuple->source), &reply_tuple->source,
					    reply_tuple->source_port, &reply_tuple->destination,
					    reply_tuple->destination_port);
	struct bpf_sock *socket;
	bool used;

	if (reply_tuple->protocol == PROTOCOL_UDP) {
		socket = bpf_sk_lookup_udp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
		if (socket)
			bpf_sk_release(socket);
		return socket;
	}
	if (reply_tuple->protocol != PROTOCOL_TCP)
		return false;
	socket = bpf_skc_lookup_tcp(ctx, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return false;
	used = socket->state != BPF_TCP_LISTEN;
	bpf_sk_release(socket);
	return used;
}

GLOBAL_FN bool snat_port_in_use(struct __sk_buff *skb, const struct tuple *reply_tuple)
{
	return reply_tuple && snat_socket_has(skb, reply_tuple);
}

/* Context of snat_search_step. */
struct snat_search {
	struct __sk_buff *skb;
	__u32 own_address; /* the source is a node address, which local sockets use too */
	enum nat_alloc_result result;
};

static long snat_search_step(__u32 attempt, struct snat_search *s)
{
	struct nat_state *state = nat_state_get();
	struct nat_new *fresh;

	if (!state)
		return 1;
	fresh = &state->fresh;
	fresh->to.source_port = nat_port_candidate(&fresh->key, fresh->to.owner, attempt);
	if (s->own_address && transport_has_ports(fresh->key.protocol)) {
		nat_reply_key(&fresh->reply_tuple, &fresh->to, fresh->key.protocol);
		if (snat_port_in_use(s->skb, &fresh->reply_tuple))
			return 0;
	}
	s->result = nat_alloc(nat_port_evicts(attempt));
	return s->result != NAT_ALLOC_TAKEN;
}

/* Tries ports of the SNAT range (bpf_loop, Linux 5.17). */
static __always_inline enum nat_alloc_result snat_search(struct __sk_buff *skb, bool own_address)
{
	struct snat_search s = {.skb = skb, .own_address = own_address, .result = NAT_ALLOC_TAKEN};

	bpf_loop(NAT_PORT_ATTEMPTS, snat_search_step, &s, 0);
	return s.result;
}

/*
 * Allocates state->fresh unchanged, or with another source port if its reply tuple is taken. With SNAT_NODE, local
 * sockets use ports of the address too. Returns 0 or a drop reason.
 */
GLOBAL_FN int snat_alloc(struct __sk_buff *skb, struct nat_state *state, int source)
{
	bool own_address = source == SNAT_NODE, keeps_port = source != SNAT_PORT;
	enum nat_alloc_result result = NAT_ALLOC_TAKEN;
	struct nat_new *fresh;
	int slot;

	if (!state)
		return DROP_NAT_TABLE_FULL;
	fresh = &state->fresh;
	if (own_address) {
		if (source_forges_tunnel(&fresh->to.destination, fresh->to.destination_port, fresh->key.protocol))
			return DROP_TUNNEL_PORT;
		nat_reply_key(&fresh->reply_tuple, &fresh->to, fresh->key.protocol);
		keeps_port = nat_port_may_keep(fresh->to.source_port, fresh->to.owner) &&
			     !(transport_has_ports(fresh->key.protocol) && snat_port_in_use(skb, &fresh->reply_tuple));
	}
	slot = nat_slot_alloc(&fresh->key, fresh->to.owner, true);
	if (slot == NAT_SLOT_NONE)
		return DROP_NAT_TABLE_FULL;
	if (keeps_port)
		result = nat_alloc(own_address ? NAT_EVICT_NONE : NAT_EVICT_UNREPLIED);
	if (result == NAT_ALLOC_TAKEN && !(fresh->to.flags & NAT_UNCHANGED))
		result = snat_search(skb, own_address);
	nat_slot_release(slot, result == NAT_ALLOC_OK, true);
	if (result != NAT_ALLOC_OK)
		return result == NAT_ALLOC_TAKEN ? DROP_NAT_PORTS_EXHAUSTED : DROP_NAT_TABLE_FULL;
	state->entry = fresh->to;
	state->has_entry = true;
	return 0;
}

GLOBAL_FN bool snat_xdp_port_in_use(struct xdp_md *ctx, const struct tuple *reply_tuple)
{
	return reply_tuple && snat_socket_has(ctx, reply_tuple);
}

/* Context of snat_xdp_search_step. */
struct snat_xdp_search {
	struct xdp_md *ctx;
	enum nat_alloc_result result;
};

static long snat_xdp_search_step(__u32 attempt, struct snat_xdp_search *s)
{
	struct nat_state *state = nat_state_get();
	struct nat_new *fresh;

	if (!state)
		return 1;
	fresh = &state->fresh;
	if (attempt)
		fresh->to.source_port = nat_port_candidate(&fresh->key, fresh->to.owner, attempt - 1);
	nat_reply_key(&fresh->reply_tuple, &fresh->to, fresh->key.protocol);
	if (!attempt && !nat_port_may_keep(fresh->to.source_port, fresh->to.owner))
		return 0;
	if (snat_xdp_port_in_use(s->ctx, &fresh->reply_tuple))
		return 0;
	s->result = nat_alloc(attempt ? nat_port_evicts(attempt - 1) : NAT_EVICT_NONE);
	return s->result != NAT_ALLOC_TAKEN;
}

/* snat_alloc for XDP: state->fresh is DSR, or has a node address and keeps the client's port if possible. */
static __always_inline enum drop_reason snat_xdp_alloc(struct xdp_md *ctx, struct nat_state *state)
{
	struct snat_xdp_search s = {.ctx = ctx, .result = NAT_ALLOC_TAKEN};
	int slot = nat_slot_alloc(&state->fresh.key, state->fresh.to.owner, true);

	if (slot == NAT_SLOT_NONE)
		return DROP_NAT_TABLE_FULL;
	if (state->fresh.to.flags & NAT_DSR)
		s.result = nat_alloc(NAT_EVICT_NONE);
	else
		bpf_loop(1 + NAT_PORT_ATTEMPTS, snat_xdp_search_step, &s, 0);
	nat_slot_release(slot, s.result == NAT_ALLOC_OK, true);
	if (s.result != NAT_ALLOC_OK)
		return s.result == NAT_ALLOC_TAKEN ? DROP_NAT_PORTS_EXHAUSTED : DROP_NAT_TABLE_FULL;
	state->entry = state->fresh.to;
	return DROP_NONE;
}
