/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What NetworkPolicies say: whom they govern, who is behind an address, and what a set of rules allows that one. */
#pragma once

#include "../config.h"
#include "address.h"
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

/* Who is behind an address. */
SEPARATE __u32 policy_identity(const struct address *a)
{
	struct block_key key = {.prefix_len = 128};
	const __u32 *identity;

	if (!config_policy || !a)
		return IDENTITY_UNKNOWN;
	key.address = *a;
	identity = bpf_map_lookup_elem(&identities, &key.address);
	if (!identity)
		identity = bpf_map_lookup_elem(&blocks, &key);
	return identity ? *identity : IDENTITY_UNKNOWN;
}

/* The same by ipBlocks alone: of an address of this node, what rules know of whoever has it without being the node. */
SEPARATE __u32 policy_identity_by_blocks(const struct address *a)
{
	struct block_key key = {.prefix_len = 128};
	const __u32 *identity;

	if (!config_policy || !a)
		return IDENTITY_UNKNOWN;
	key.address = *a;
	identity = bpf_map_lookup_elem(&blocks, &key);
	return identity ? *identity : IDENTITY_UNKNOWN;
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

/*
 * What a set of rules says about connections with somebody: the number of the NetworkPolicy that allows them, or
 * POLICY_FORBIDS. `port` is the one that they are opened to, in network order; `known` is an enum policy_known.
 */
SEPARATE __s64 policy_ask(__u32 set, __u32 identity, __u8 protocol, __u16 port, __u32 known)
{
	struct policy_port_key key = {.prefix_len = known, .protocol = protocol};
	__u32 ports = config_policy ? policy_allowed(set, identity) : 0;
	const __u32 *policy;

	if (!ports)
		return POLICY_FORBIDS;
	key.ports = bpf_htonl(ports);
	__builtin_memcpy(key.port, &port, sizeof(key.port));
	policy = bpf_map_lookup_elem(&policy_ports, &key);
	return policy ? (__s64)*policy : POLICY_FORBIDS;
}
