/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decisions that are made once and kept for the packets that follow. */
#pragma once

#include "packet.h"

/* 0 before the agent has filled the tables: nothing is kept then. */
static __always_inline __u32 decision_generation(void)
{
	__u32 zero = 0;
	__u32 *now = bpf_map_lookup_elem(&generation, &zero);

	return now ? *now : 0;
}

/* The place of the decision about a packet on this CPU; programs on one CPU do not interrupt each other. */
static __always_inline struct decision *decision_place(const struct packet *p)
{
	/* Neighbouring addresses differ in their last word: spread its bits (Knuth's multiplicative hash). */
	__u32 hash = (p->source.word[3] * 0x9e3779b1 ^ p->destination.word[3]) * 0x9e3779b1;
	__u32 index = hash >> 24;

	_Static_assert(DECISIONS_MAX == 1 << 8, "the index has 8 bits");
	return bpf_map_lookup_elem(&decisions, &index);
}

/* Whether the decision is about packets like this one, and still holds. */
static __always_inline bool decision_holds(const struct decision *d, const struct packet *p, __u32 now)
{
	return d->generation == now && now && d->ingress_ifindex == p->skb->ifindex &&
	       address_equals(&d->destination, &p->destination) && address_equals(&d->source, &p->source);
}

/*
 * Makes a decision about packets like this one, until the tables change. `now` was read before the tables,
 * so a decision from tables that changed meanwhile is already out of date.
 */
static __always_inline void decision_keep(struct decision *d, const struct packet *p, __u32 now)
{
	d->source = p->source;
	d->destination = p->destination;
	d->ingress_ifindex = p->skb->ifindex;
	d->generation = now;
}
