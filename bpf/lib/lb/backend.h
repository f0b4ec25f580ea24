/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frontends, backends, and the result of a Service lookup. */
#pragma once

#include "lib/net/address.h"
#include "lib/net/verdict.h"

/* Where a connection comes from: it selects the traffic policy. */
enum lb_side {
	LB_INTERNAL, /* pods and the node itself */
	LB_EXTERNAL, /* outside the node */
};

/* The result of a Service lookup; a drop reason is positive. */
enum lb_verdict {
	LB_NONE = 0,	 /* no frontend on this side */
	LB_BACKEND = -1, /* choice.backend is set */
	LB_REJECT = -2,	 /* no endpoints: TCP RST, ICMP port unreachable, ECONNREFUSED */
};

/* Details of the result. service and flags are valid unless the result is LB_NONE. */
struct lb_choice {
	struct backend backend; /* with LB_BACKEND */
	__u32 service;		/* id */
	__u32 flags;		/* enum service_flag */
	__u32 set, index;	/* of the backend, with LB_BACKEND */
};

static __always_inline const struct service *service_of(const struct frontend *f)
{
	return bpf_map_lookup_elem(&services, f);
}

/* Whether what pods send to the frontend is translated or rejected: nothing replies from its address. */
static __always_inline bool service_serves_pods(const struct frontend *f)
{
	const struct service *s = service_of(f);

	return s && (s->internal.count || s->internal.no_backend != NO_BACKEND_PASS);
}

static __always_inline void service_frontend(struct frontend *f, const struct tuple *t)
{
	f->address = t->destination;
	f->port = t->destination_port;
	f->protocol = t->protocol;
	f->padding = 0;
}

static __always_inline bool backend_equals(const struct backend *a, const struct backend *b)
{
	return a->port == b->port && address_equals(&a->address, &b->address);
}

/* Context of service_find_step. */
struct service_search {
	struct backend backend;
	struct backend_key key; /* of the backend that was found */
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

/* Finds a backend in a set. A client searches once for each set that replaces another (bpf_loop, Linux 5.17). */
static __noinline bool service_find(__u32 set, __u32 count, const struct backend *backend, __u32 *index)
{
	struct service_search s = {.backend = *backend, .key.set = set};

	bpf_loop(count, service_find_step, &s, 0);
	*index = s.key.index;
	return s.found;
}
