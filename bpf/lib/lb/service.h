/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chooses the backend of a new connection to a Service, for sockets, tc and XDP. Later packets use the NAT entry,
 * the socket's entry or session affinity.
 */
#pragma once

#include "lib/fwd/source.h"
#include "lib/lb/affinity.h"
#include "lib/lb/backend.h"
#include "lib/lb/maglev.h"

/* Whether a source is in loadBalancerSourceRanges. Only for Services with SERVICE_SOURCES. */
static __noinline bool service_allows(__u32 service, const struct address *source)
{
	struct source_key key = {
		.prefix_len = 8 * (sizeof(key.service) + sizeof(key.address)),
		.service = bpf_htonl(service),
		.address = *source,
	};

	return bpf_map_lookup_elem(&service_sources, &key);
}

/* The counters of a Service on this CPU, created at first use. NULL if the map is full. */
static __noinline struct service_count *service_count_get(__u32 service)
{
	struct service_count *count = bpf_map_lookup_elem(&service_counts, &service);
	struct service_count none = {};

	if (likely(count))
		return count;
	bpf_map_update_elem(&service_counts, &service, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&service_counts, &service);
}

/* Picks a backend of a set that is not empty. Returns false if the set is gone. */
static __noinline bool service_pick(const struct tuple *t, const struct backend_set *set, bool socket,
				    struct lb_choice *c)
{
	struct backend_key key = {.set = set->id};
	const struct backend *b;

	if (socket || !set->maglev_size)
		key.index = bpf_get_prandom_u32() % set->count;
	else
		key.index = service_maglev(set, service_hash(t));
	b = bpf_map_lookup_elem(&backends, &key);
	if (!b)
		return false;
	c->backend = *b;
	c->set = key.set;
	c->index = key.index;
	return true;
}

/* The part of struct service for one side. A copy of the whole would exceed the stack. */
struct lb_service {
	__u32 id, affinity;
	__u32 flags; /* enum service_flag */
	struct backend_set set;
};

/* Chooses by one snapshot of the Service. Returns false if the snapshot has become inconsistent. */
GLOBAL_FN bool service_choose_from(const struct tuple *t, const struct lb_service *s, __u64 netns, struct lb_choice *c)
{
	struct client client;

	if (!t || !s || !c)
		return false;
	if (!(s->flags & SERVICE_AFFINITY))
		return service_pick(t, &s->set, netns, c);
	affinity_client(&client, t, s->id, netns);
	if (affinity_find(&client, &s->set, s->affinity, c))
		return true;
	if (!service_pick(t, &s->set, netns, c))
		return false;
	affinity_store(&client, c);
	return true;
}

/* Reads a snapshot of the Service; false if there is none. */
static __always_inline bool service_read(const struct tuple *t, enum lb_side side, struct lb_service *s)
{
	const struct service *now;
	struct frontend f;

	service_frontend(&f, t);
	now = service_of(&f);
	if (!now)
		return false;
	s->id = now->id;
	s->affinity = now->affinity;
	s->flags = now->flags;
	s->set = side == LB_INTERNAL ? now->internal : now->external;
	return true;
}

/* Whether the snapshot is still current. */
static __always_inline bool service_unchanged(const struct tuple *t, enum lb_side side, const struct lb_service *read)
{
	const struct backend_set *now;
	const struct service *s;
	struct frontend f;

	service_frontend(&f, t);
	s = service_of(&f);
	if (!s)
		return false;
	now = side == LB_INTERNAL ? &s->internal : &s->external;
	return s->id == read->id && now->id == read->set.id && now->count == read->set.count;
}

#define SERVICE_ATTEMPTS 4

/*
 * Chooses the backend of a new connection to a Service, which the caller has found by service_of. `t` is the tuple
 * of the first packet; for a socket only destination and protocol are set. `netns` is the cookie of a socket's
 * network namespace, 0 for packets. Only packets are checked against the source ranges: sockets have no source
 * yet. Returns an enum lb_verdict or a drop reason, and counts it, except DROP_NO_LOCAL_BACKEND and DROP_TUNNEL_PORT
 * for sockets, whose packets are counted by from_pod.
 *
 * The Service is read again after choosing: the agent may have replaced its set meanwhile, and the kernel reuses
 * freed map elements at once. A result is valid if both reads agree.
 */
GLOBAL_FN int service_choose(const struct tuple *t, enum lb_side side, __u64 netns, struct lb_choice *c)
{
	struct lb_service s;
	struct service_count *count;
	int verdict = LB_NONE;

	if (!t || !c || !service_read(t, side, &s))
		return LB_NONE;
	for (int i = 0; i < SERVICE_ATTEMPTS; i++) {
		bool whole = true;

		if (!netns && s.flags & SERVICE_SOURCES && !service_allows(s.id, &t->source))
			verdict = DROP_SOURCE_NOT_ALLOWED;
		else if (s.set.count)
			verdict = (whole = service_choose_from(t, &s, netns, c)) ? LB_BACKEND : LB_NONE;
		else if (s.set.no_backend == NO_BACKEND_REJECT)
			verdict = LB_REJECT;
		else
			verdict = s.set.no_backend == NO_BACKEND_DROP ? DROP_NO_LOCAL_BACKEND : LB_NONE;
		if (service_unchanged(t, side, &s) && whole)
			break;
		verdict = LB_NONE;
		if (!service_read(t, side, &s))
			return LB_NONE;
	}
	c->service = s.id;
	c->flags = s.flags;
	if (verdict == LB_BACKEND && source_forges_tunnel(&c->backend.address, c->backend.port, t->protocol))
		verdict = DROP_TUNNEL_PORT;
	if (verdict == LB_NONE || ((verdict == DROP_NO_LOCAL_BACKEND || verdict == DROP_TUNNEL_PORT) && netns))
		return verdict;
	count = service_count_get(s.id);
	if (!count)
		return verdict;
	if (verdict == LB_BACKEND)
		count->connections++;
	else
		count->rejected++;
	return verdict;
}
