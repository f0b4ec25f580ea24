/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Session affinity (sessionAffinity: ClientIP). */
#pragma once

#include "lib/lb/backend.h"

/* The client: a socket by its network namespace, a packet (netns 0) by its source address. */
static __always_inline void affinity_client(struct client *c, const struct tuple *t, __u32 service, __u64 netns)
{
	c->address = t->source;
	c->service = service;
	c->kind = CLIENT_ADDRESS;
	if (netns) {
		__builtin_memset(&c->address, 0, sizeof(c->address));
		c->address.word[0] = netns;
		c->address.word[1] = netns >> 32;
		c->kind = CLIENT_NETNS;
	}
}

/* Whether the client is local: a socket, or a pod, whose source address from_pod has validated. */
static __always_inline bool service_client_is_local(const struct client *c)
{
	return c->kind == CLIENT_NETNS || bpf_map_lookup_elem(&endpoints, &c->address);
}

/* The backend of the client's last connection, if it is recent enough and still in the set. */
static __always_inline bool affinity_find(const struct client *client, const struct backend_set *set, __u32 seconds,
					  struct lb_choice *c)
{
	__u64 now = bpf_ktime_get_ns();
	struct affinity *a;

	a = service_client_is_local(client) ? bpf_map_lookup_elem(&affinities, client)
					    : bpf_map_lookup_elem(&affinities_ext, client);
	if (!a || now - a->used > seconds * 1000000000ULL)
		return false;
	c->backend = a->backend;
	c->set = set->id;
	c->index = a->index;
	if (a->set != set->id) {
		if (!service_find(set->id, set->count, &c->backend, &c->index))
			return false;
		a->index = c->index;
		a->set = set->id;
	}
	a->used = now;
	return true;
}

static __noinline void affinity_store(const struct client *client, const struct lb_choice *c)
{
	struct affinity a = {
		.used = bpf_ktime_get_ns(),
		.set = c->set,
		.index = c->index,
		.backend = c->backend,
	};

	if (service_client_is_local(client))
		bpf_map_update_elem(&affinities, client, &a, BPF_ANY);
	else
		bpf_map_update_elem(&affinities_ext, client, &a, BPF_ANY);
}
