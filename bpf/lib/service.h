/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which backend a new connection to a Service goes to: for sockets, tc and XDP alike, so nothing here knows of packets.
 * The first packet of a connection asks, the others follow what was decided for it.
 */
#pragma once

#include "address.h"
#include "origin.h"
#include "verdict.h"

/* Which side of the node a connection comes from. */
enum side {
	SIDE_INSIDE,  /* pods and the node itself */
	SIDE_OUTSIDE, /* the wire */
};

/* What a Service says to a connection. */
enum answer {
	ANSWER_NONE = 0, /* no Service answers there on this side: not for translation */
	ANSWER_BACKEND,	 /* goes to choice.backend */
	ANSWER_REFUSE,	 /* no endpoints: TCP RST, ICMP port unreachable, ECONNREFUSED */
	ANSWER_DROP,	 /* a traffic policy Local, and no endpoint is here: DROP_NO_LOCAL_BACKEND */
	ANSWER_TUNNEL,	 /* goes to the tunnels' port of what may be a node: DROP_TUNNEL_PORT */
	ANSWER_FORBID,	 /* the source may not use the Service: DROP_SOURCE_NOT_ALLOWED */
};

/* The Service's answer in detail; id and flags are valid whenever the answer is not ANSWER_NONE. */
struct choice {
	struct backend backend; /* with ANSWER_BACKEND */
	__u32 service;		/* id */
	__u32 flags;		/* enum service_flag */
	__u32 set, index;	/* of the backend, with ANSWER_BACKEND */
};

/* The Service that has a frontend, NULL if none has. */
static __always_inline const struct service *service_of(const struct frontend *f)
{
	return bpf_map_lookup_elem(&services, f);
}

/* The frontend that a packet is addressed to. */
static __always_inline void service_frontend(struct frontend *f, const struct tuple *t)
{
	f->address = t->destination;
	f->port = t->destination_port;
	f->protocol = t->protocol;
	f->padding = 0;
}

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
static __noinline struct service_count *service_count_of(__u32 service)
{
	struct service_count *count = bpf_map_lookup_elem(&service_counts, &service);
	struct service_count none = {};

	if (likely(count))
		return count;
	bpf_map_update_elem(&service_counts, &service, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&service_counts, &service);
}

/* One round of MurmurHash3 (x86, 32 bits). */
static __always_inline __u32 service_hash_word(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = word << 15 | word >> 17;
	hash ^= word * 0x1b873593;
	hash = hash << 13 | hash >> 19;
	return hash * 5 + 0xe6546b64;
}

/*
 * Equal on all nodes for packets of one connection. The destination's address is not in it: nodes forward for each
 * other what came to their own addresses. Clients of a Service with affinity are not told apart by their address alone: once
 * the Service's time is over they may get another backend, which Kubernetes' tests expect.
 */
static __always_inline __u32 service_hash(const struct tuple *t)
{
	__u32 hash = 0;

	for (int i = 0; i < 4; i++)
		hash = service_hash_word(hash, t->source.word[i]);
	hash = service_hash_word(hash, (__u32)t->source_port << 16 | t->destination_port);
	hash = service_hash_word(hash, t->protocol);
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* The backend's index by consistent hashing. A set that is just being replaced may lack its table: any index then. */
static __always_inline __u32 service_maglev(const struct backend_set *set, __u32 hash)
{
	__u32 position = hash % set->maglev_size;
	struct maglev_key key = {.table = set->maglev};
	const struct maglev_block *block;
	__u32 offset;

	if (set->maglev_width == 2)
		position *= 2;
	key.block = position / MAGLEV_BLOCK;
	block = bpf_map_lookup_elem(&maglev, &key);
	if (!block)
		return hash % set->count;
	offset = position % MAGLEV_BLOCK;
	barrier_var(offset); /* the compiler knows the range; the verifier has to see it checked */
	if (set->maglev_width != 2)
		return offset < MAGLEV_BLOCK ? block->entries[offset] : 0;
	if (offset > MAGLEV_BLOCK - 2)
		return 0;
	return block->entries[offset] | (__u32)block->entries[offset + 1] << 8;
}

static __always_inline bool backend_equals(const struct backend *a, const struct backend *b)
{
	return a->port == b->port && address_equals(&a->address, &b->address);
}

/* What service_find_step looks for. */
struct service_search {
	struct backend backend;
	struct backend_key key; /* of the backend, once it is found */
	__u32 found;
};

static long service_find_step(__u32 index, struct service_search *s)
{
	const struct backend *b;

	s->key.index = index;
	b = bpf_map_lookup_elem(&backends, &s->key);
	s->found = b && backend_equals(b, &s->backend);
	return s->found;
}

/* Whether a set has a backend, and at which index. A client asks once for each set that replaces another (bpf_loop, Linux 5.17). */
static __noinline bool service_find(__u32 set, __u32 count, const struct backend *backend, __u32 *index)
{
	struct service_search s = {.backend = *backend, .key.set = set};

	bpf_loop(count, service_find_step, &s, 0);
	*index = s.key.index;
	return s.found;
}

/* Who asks: a socket by its network namespace, a packet (netns 0) by its source address. */
static __always_inline void service_client(struct client *c, const struct tuple *t, __u32 service, __u64 netns)
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

/* Whether a client is this node's: a socket, or a pod, whose device has shown that the source is its own. */
static __always_inline bool service_client_is_here(const struct client *c)
{
	return c->kind == CLIENT_NETNS || bpf_map_lookup_elem(&endpoints, &c->address);
}

/* The backend that the client had, if that was not longer ago than the Service says and the set still has it. */
static __always_inline bool service_kept(const struct client *client, const struct backend_set *set, __u32 seconds,
					 struct choice *c)
{
	__u64 now = bpf_ktime_get_ns();
	struct affinity *a;

	a = service_client_is_here(client) ? bpf_map_lookup_elem(&affinities, client)
					   : bpf_map_lookup_elem(&affinities_outside, client);
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

static __noinline void service_keep(const struct client *client, const struct choice *c)
{
	struct affinity a = {
		.used = bpf_ktime_get_ns(),
		.set = c->set,
		.index = c->index,
		.backend = c->backend,
	};

	if (service_client_is_here(client))
		bpf_map_update_elem(&affinities, client, &a, BPF_ANY);
	else
		bpf_map_update_elem(&affinities_outside, client, &a, BPF_ANY);
}

/* A backend of a set that has some, and no memory of the client. False when the set is gone. */
static __noinline bool service_pick(const struct tuple *t, const struct backend_set *set, bool socket, struct choice *c)
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
struct service_side {
	__u32 id, affinity;
	__u32 flags; /* enum service_flag */
	struct backend_set set;
};

/* service_choose with one state of the Service. False when that state is not whole any more. */
SEPARATE bool service_choose_from(const struct tuple *t, const struct service_side *s, __u64 netns, struct choice *c)
{
	struct client client;

	if (!t || !s || !c)
		return false;
	if (!(s->flags & SERVICE_AFFINITY))
		return service_pick(t, &s->set, netns, c);
	service_client(&client, t, s->id, netns);
	if (service_kept(&client, &s->set, s->affinity, c))
		return true;
	if (!service_pick(t, &s->set, netns, c))
		return false;
	service_keep(&client, c);
	return true;
}

/* The present state of the Service and of its set for a side; false when there is none. */
static __always_inline bool service_read(const struct tuple *t, enum side side, struct service_side *s)
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
	s->set = side == SIDE_INSIDE ? now->inside : now->outside;
	return true;
}

/* Whether that is still its state. */
static __always_inline bool service_still(const struct tuple *t, enum side side, const struct service_side *read)
{
	const struct backend_set *now;
	const struct service *s;
	struct frontend f;

	service_frontend(&f, t);
	s = service_of(&f);
	if (!s)
		return false;
	now = side == SIDE_INSIDE ? &s->inside : &s->outside;
	return s->id == read->id && now->id == read->set.id && now->count == read->set.count;
}

#define SERVICE_ATTEMPTS 4

/*
 * Where a new connection goes that is addressed to a Service, which the caller has found by service_of. `t` has the addresses
 * and ports of its first packet; of a socket's, the destination, the protocol and 0 for the rest. `netns` is the
 * cookie of a socket's network namespace, 0 for a packet. Sources of packets are checked against the Service's;
 * sockets have none yet, see there. Counts what it answers, but for ANSWER_DROP and ANSWER_TUNNEL to a socket, whose packets ask again.
 *
 * The Service is read again after choosing: its set may have been replaced and deleted meanwhile, and the kernel
 * gives the place of a replaced map element to another one at once. What both readings say was true.
 */
SEPARATE enum answer service_choose(const struct tuple *t, enum side side, __u64 netns, struct choice *c)
{
	struct service_side s;
	struct service_count *count;
	enum answer answer = ANSWER_NONE;

	if (!t || !c || !service_read(t, side, &s))
		return ANSWER_NONE;
	for (int i = 0; i < SERVICE_ATTEMPTS; i++) {
		bool whole = true;

		if (!netns && s.flags & SERVICE_SOURCES && !service_allows(s.id, &t->source))
			answer = ANSWER_FORBID;
		else if (s.set.count)
			answer = (whole = service_choose_from(t, &s, netns, c)) ? ANSWER_BACKEND : ANSWER_NONE;
		else if (s.set.without == WITHOUT_BACKEND_REFUSE)
			answer = ANSWER_REFUSE;
		else
			answer = s.set.without == WITHOUT_BACKEND_DROP ? ANSWER_DROP : ANSWER_NONE;
		if (service_still(t, side, &s) && whole)
			break;
		answer = ANSWER_NONE;
		if (!service_read(t, side, &s))
			return ANSWER_NONE;
	}
	c->service = s.id;
	c->flags = s.flags;
	if (answer == ANSWER_BACKEND && origin_is_forged_tunnel(&c->backend.address, c->backend.port, t->protocol))
		answer = ANSWER_TUNNEL;
	if (answer == ANSWER_NONE || ((answer == ANSWER_DROP || answer == ANSWER_TUNNEL) && netns))
		return answer;
	count = service_count_of(s.id);
	if (!count)
		return answer;
	if (answer == ANSWER_BACKEND)
		count->connections++;
	else
		count->refused++;
	return answer;
}
