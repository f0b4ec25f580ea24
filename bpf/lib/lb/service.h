/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which backend a new connection to a Service goes to: for sockets, tc and XDP alike, so nothing here knows of packets.
 * The first packet of a connection asks, the others follow what was decided for it.
 */
#pragma once

#include "lib/fwd/source.h"
#include "lib/lb/affinity.h"
#include "lib/lb/backend.h"
#include "lib/lb/maglev.h"

/* Whether a source is in the Service's loadBalancerSourceRanges. Ask only with SERVICE_SOURCES. */
static __noinline bool service_allows(__u32 service, const struct address *source)
{
	struct source_key key = {
		.prefix_len = 8 * (sizeof(key.service) + sizeof(key.address)),
		.service = bpf_htonl(service),
		.address = *source,
	};

	return bpf_map_lookup_elem(&service_sources, &key);
}

/* The counters of a Service on this CPU, made at first use. NULL when there is no room for them. */
static __noinline struct service_count *service_count_get(__u32 service)
{
	struct service_count *count = bpf_map_lookup_elem(&service_counts, &service);
	struct service_count none = {};

	if (likely(count))
		return count;
	bpf_map_update_elem(&service_counts, &service, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&service_counts, &service);
}

/* A backend of a set that has some, and no memory of the client. False when the set is gone. */
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

/* What is needed of a Service for connections from one side. Of struct service, call chains have no room for a copy. */
struct lb_service {
	__u32 id, affinity;
	__u32 flags; /* enum service_flag */
	struct backend_set set;
};

/* service_choose with one state of the Service. False when that state is not whole any more. */
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

/* The present state of the Service and of its set for a side; false when there is none. */
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

/* Whether that is still its state. */
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
 * Where a new connection goes that is addressed to a Service, which the caller has found by service_of. `t` has the addresses
 * and ports of its first packet; of a socket's, the destination, the protocol and 0 for the rest. `netns` is the
 * cookie of a socket's network namespace, 0 for a packet. Sources of packets are checked against the Service's;
 * sockets have none yet, see there. Counts what it answers, but for LB_DROP and LB_TUNNEL_PORT to a socket, whose packets ask again.
 *
 * The Service is read again after choosing: its set may have been replaced and deleted meanwhile, and the kernel
 * gives the place of a replaced map element to another one at once. What both readings say was true.
 */
GLOBAL_FN enum lb_verdict service_choose(const struct tuple *t, enum lb_side side, __u64 netns, struct lb_choice *c)
{
	struct lb_service s;
	struct service_count *count;
	enum lb_verdict verdict = LB_NONE;

	if (!t || !c || !service_read(t, side, &s))
		return LB_NONE;
	for (int i = 0; i < SERVICE_ATTEMPTS; i++) {
		bool whole = true;

		if (!netns && s.flags & SERVICE_SOURCES && !service_allows(s.id, &t->source))
			verdict = LB_DENY;
		else if (s.set.count)
			verdict = (whole = service_choose_from(t, &s, netns, c)) ? LB_BACKEND : LB_NONE;
		else if (s.set.no_backend == NO_BACKEND_REJECT)
			verdict = LB_REJECT;
		else
			verdict = s.set.no_backend == NO_BACKEND_DROP ? LB_DROP : LB_NONE;
		if (service_unchanged(t, side, &s) && whole)
			break;
		verdict = LB_NONE;
		if (!service_read(t, side, &s))
			return LB_NONE;
	}
	c->service = s.id;
	c->flags = s.flags;
	if (verdict == LB_BACKEND && source_forges_tunnel(&c->backend.address, c->backend.port, t->protocol))
		verdict = LB_TUNNEL_PORT;
	if (verdict == LB_NONE || ((verdict == LB_DROP || verdict == LB_TUNNEL_PORT) && netns))
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
