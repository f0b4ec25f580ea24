/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What NetworkPolicies say: whom they govern, who is behind an address, and what a set of rules allows that one. */
#pragma once

#include "../config.h"
#include "address.h"
#include "hash.h"
#include "verdict.h"

/* Whether anything is tracked at all. Without, the verifier takes out what asks this first. */
static __always_inline bool policy_tracks(void)
{
	return config_policy || config_flows == FLOWS_ALL;
}

/* The number of what is in force: what was allowed under another one is judged again. */
static __always_inline __u32 policy_revision(void)
{
	__u32 index = GENERATION_POLICY;
	const __u32 *revision = bpf_map_lookup_elem(&generation, &index);

	return revision ? *revision : 0;
}

/* Whether policies select the pod of this node that has an address, in either direction. */
static __always_inline bool policy_governs(const struct address *pod)
{
	return config_policy && bpf_map_lookup_elem(&policed_pods, pod);
}

/* Who asks about packets that go to a pod: nobody, if they do not go straight into it. */
static __always_inline __u32 policy_policed(const struct address *pod, const struct route *way)
{
	__u32 policed = config_flows == FLOWS_ALL ? POLICED_OBSERVED : 0;

	if (way->kind != ROUTE_LOCAL)
		return 0;
	return policy_governs(pod) ? policed | POLICED_INGRESS : policed;
}

/* The state of `identities` and `blocks`; 0 before the agent has filled them: nobody is remembered then. */
static __always_inline __u32 policy_identities(void)
{
	__u32 index = GENERATION_IDENTITIES;
	const __u32 *state = bpf_map_lookup_elem(&generation, &index);

	return state ? *state : 0;
}

/* The place in `identified` of an address; programs on one CPU do not interrupt each other. As decision_index, with two words of IPv6. */
static __always_inline struct identified *policy_identified(const struct address *a)
{
	__u32 index = (a->word[2] * HASH_MULTIPLIER ^ a->word[3]) * HASH_MULTIPLIER >> 22;

	_Static_assert(IDENTIFIED_MAX == 1 << 10, "the index has 10 bits");
	return bpf_map_lookup_elem(&identified, &index);
}

/* Whom to ask about an address: all, or ipBlocks alone. What these say of this node's own is about whoever has it without being the node. */
enum policy_source {
	POLICY_BY_ALL = 0,
	POLICY_BY_BLOCKS = 1,
};

/*
 * Who is behind an address: remembered, or found; `by` is an enum policy_source. What is found while the tables change bears the number
 * that was read before, and is out of date already.
 */
SEPARATE __u32 policy_identity(const struct address *a, __u32 by)
{
	struct block_key key = {.prefix_len = 128};
	const __u32 *found = 0;
	struct identified *i;
	__u32 now;

	if (!config_policy || !a)
		return IDENTITY_UNKNOWN;
	now = by == POLICY_BY_ALL ? policy_identities() : 0;
	i = policy_identified(a);
	if (!i)
		return IDENTITY_UNKNOWN; /* cannot be: every index has its element */
	if (likely(now && i->generation == now && address_equals(&i->address, a)))
		return i->identity;
	key.address = *a;
	if (by == POLICY_BY_ALL)
		found = bpf_map_lookup_elem(&identities, &key.address);
	if (!found)
		found = bpf_map_lookup_elem(&blocks, &key);
	i->generation = now;
	i->address = key.address;
	i->identity = found ? *found : IDENTITY_UNKNOWN;
	return i->identity;
}

/* What a set of rules allows somebody: the number in `policy_ports`; 0 for nothing. The first entry is the whole answer. */
static __always_inline __u32 policy_allowed(__u32 set, __u32 identity)
{
	struct policy_key key = {set, identity};
	const __u32 *ports = bpf_map_lookup_elem(&policies, &key);

	if (!ports && identity & IDENTITY_POD) {
		key.identity = IDENTITY_POD;
		ports = bpf_map_lookup_elem(&policies, &key);
	}
	if (!ports && identity != IDENTITY_UNKNOWN) {
		key.identity = IDENTITY_UNKNOWN;
		ports = bpf_map_lookup_elem(&policies, &key);
	}
	return ports ? *ports : 0;
}

/* How much of a packet is known that rules may ask for: prefix_len of struct policy_port_key. */
enum policy_known {
	POLICY_KNOWN_PROTOCOL = 40, /* only rules without ports match */
	POLICY_KNOWN_PORT = 56,
};

#define POLICY_FORBIDS -1

/* What is asked about a packet, as one number: programs of Linux 6.1 have no room for more on the stack. `known` is an enum policy_known. */
static __always_inline __u32 policy_what(__u8 protocol, __be16 port, __u32 known)
{
	return (__u32)port << 16 | protocol << 8 | known;
}

/* The place in `rulings` of a question; programs on one CPU do not interrupt each other. */
static __always_inline struct ruling *policy_ruling(__u32 set, __u32 identity, __u32 what)
{
	__u32 hash = (set * HASH_MULTIPLIER ^ identity) * HASH_MULTIPLIER ^ what;
	__u32 index = hash * HASH_MULTIPLIER >> 24;

	_Static_assert(RULINGS_MAX == 1 << 8, "the index has 8 bits");
	return bpf_map_lookup_elem(&rulings, &index);
}

/* What a set of rules says, from its tables: as policy_ask. */
static __always_inline __s64 policy_look_up(__u32 set, __u32 identity, __u32 what)
{
	struct policy_port_key key = {.prefix_len = what & 0xff, .protocol = what >> 8};
	__u32 ports = policy_allowed(set, identity);
	__be16 port = what >> 16;
	const __u32 *policy;

	if (!ports)
		return POLICY_FORBIDS;
	key.ports = bpf_htonl(ports);
	__builtin_memcpy(key.port, &port, sizeof(key.port));
	policy = bpf_map_lookup_elem(&policy_ports, &key);
	return policy ? (__s64)*policy : POLICY_FORBIDS;
}

/*
 * What a set of rules says about connections with somebody: the number of the NetworkPolicy that allows them, or
 * POLICY_FORBIDS. What is allowed is remembered, as sessions are, for as long as the revision is the same, which was read before the tables. What is
 * forbidden is not: a rule that is added makes no new revision.
 */
SEPARATE __s64 policy_ask(__u32 set, __u32 identity, __u32 what, __u32 revision)
{
	struct ruling *r;
	__s64 policy;

	if (!config_policy)
		return POLICY_FORBIDS;
	r = policy_ruling(set, identity, what);
	if (r && likely(r->set == set && r->identity == identity && r->what == what && r->revision == revision))
		return r->policy;
	policy = policy_look_up(set, identity, what);
	if (r && policy != POLICY_FORBIDS)
		*r = (struct ruling){revision, set, identity, what, policy};
	return policy;
}
