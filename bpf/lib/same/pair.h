/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two sockets that are the ends of one connection between two pods of this node that both opted in. An address
 * alone proves nothing: a pod may give itself any address in its own namespace. So each end is the address of a pod
 * that opted in together with the cookie of that pod's namespace, which the kernel assigns and never reuses.
 */
#pragma once

#include "lib/policy/ct_key.h"
#include "lib/policy/policy.h"
#include "lib/same/count.h"

/* The addresses and ports of a socket. Returns false for other families. */
static __always_inline bool pair_key(struct bpf_sock_ops *ctx, struct same_node_key *key)
{
	if (ctx->family == 2 /* AF_INET */) {
		address_from_ipv4(&key->local, ctx->local_ip4);
		address_from_ipv4(&key->remote, ctx->remote_ip4);
	} else if (ctx->family == 10 /* AF_INET6 */) {
		key->local.word[0] = ctx->local_ip6[0];
		key->local.word[1] = ctx->local_ip6[1];
		key->local.word[2] = ctx->local_ip6[2];
		key->local.word[3] = ctx->local_ip6[3];
		key->remote.word[0] = ctx->remote_ip6[0];
		key->remote.word[1] = ctx->remote_ip6[1];
		key->remote.word[2] = ctx->remote_ip6[2];
		key->remote.word[3] = ctx->remote_ip6[3];
	} else {
		return false;
	}
	key->local_port = bpf_htons(ctx->local_port);
	key->remote_port = ctx->remote_port >> 16; /* the kernel gives the port in network order in the upper half */
	return true;
}

/*
 * The pod that the socket is of, and the key of the other socket; completes the key. NULL unless the local address is that of the
 * socket's own namespace and the remote one that of another pod.
 */
static __always_inline const struct same_node_pod *pair_find(struct same_node_key *key, struct same_node_key *peer)
{
	const struct same_node_pod *own = bpf_map_lookup_elem(&sn_pods, &key->local), *other;

	if (likely(!own) || own->netns != key->netns)
		return 0;
	other = bpf_map_lookup_elem(&sn_pods, &key->remote);
	if (!other || other->netns == key->netns)
		return 0;
	key->peer_netns = other->netns;
	peer->local = key->remote;
	peer->remote = key->local;
	peer->local_port = key->remote_port;
	peer->remote_port = key->local_port;
	peer->netns = other->netns;
	peer->peer_netns = key->netns;
	peer->padding = 0;
	return own;
}

/* The key of the conntrack entry. */
static __always_inline bool pair_session(const struct same_node_key *key, struct tuple *session)
{
	struct tuple t = {.source = key->local,
			  .destination = key->remote,
			  .source_port = key->local_port,
			  .destination_port = key->remote_port,
			  .protocol = PROTOCOL_TCP};

	return ct_key(session, &t);
}

/* Takes one socket of a pod's share. Returns false if none is left. */
static __always_inline bool pair_take_share(__u64 netns, __u32 share)
{
	__u32 *sockets = bpf_map_lookup_elem(&sn_shares, &netns);
	__u32 zero = 0;

	if (!sockets) {
		bpf_map_update_elem(&sn_shares, &netns, &zero, BPF_NOEXIST);
		sockets = bpf_map_lookup_elem(&sn_shares, &netns);
		if (!sockets)
			return false;
	}
	if (__sync_fetch_and_add(sockets, 1) < share)
		return true;
	__sync_fetch_and_add(sockets, -1);
	return false;
}

static __always_inline void pair_return_share(__u64 netns)
{
	__u32 *sockets = bpf_map_lookup_elem(&sn_shares, &netns);

	/* The agent's recount may have counted the socket as closed. */
	if (sockets && *sockets)
		__sync_fetch_and_add(sockets, -1);
}

/* Whether both pods still opt in; it also looks up which ends policies select. Repeated after a change of tables. */
static __always_inline bool pair_is_current(struct same_node_sock *s)
{
	__u32 index = GENERATION_TABLES;
	const __u32 *tables = bpf_map_lookup_elem(&generation, &index);
	const struct same_node_pod *own, *other;

	if (!tables)
		return false;
	if (likely(s->checked && s->tables == *tables))
		return true;
	s->tables = *tables;
	own = bpf_map_lookup_elem(&sn_pods, &s->peer.remote);
	other = bpf_map_lookup_elem(&sn_pods, &s->peer.local);
	if (!own || !other || own->netns != s->netns || other->netns != s->peer.netns)
		return false;
	s->selected = (policy_selects(&s->session.source) ? SAME_NODE_SELECTED_SOURCE : 0) |
		      (policy_selects(&s->session.destination) ? SAME_NODE_SELECTED_DESTINATION : 0);
	s->checked = true;
	return true;
}
