/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NetworkPolicies: which pods they select, and what a set of rules allows. */
#pragma once

#include "lib/policy/identity.h"

/* Whether anything is tracked. If not, the verifier prunes what tests this first. */
static __always_inline bool policy_tracks(void)
{
	return config_policy || config_flows == FLOWS_ALL;
}

/* The policy revision. Entries of an older one are re-evaluated. */
static __always_inline __u32 policy_revision(void)
{
	__u32 index = GENERATION_POLICY;
	const __u32 *revision = bpf_map_lookup_elem(&generation, &index);

	return revision ? *revision : 0;
}

/* Whether policies select a local pod, in either direction. */
static __always_inline bool policy_selects(const struct address *pod)
{
	return config_policy && bpf_map_lookup_elem(&policy_pods, pod);
}

/* enum enforce_flag of packets to a pod; 0 unless they are redirected into it. */
static __always_inline __u32 policy_enforce(const struct address *pod, const struct route *route)
{
	__u32 enforce = config_flows == FLOWS_ALL ? ENFORCE_OBSERVED : 0;

	if (route->kind != ROUTE_LOCAL)
		return 0;
	return policy_selects(pod) ? enforce | ENFORCE_INGRESS : enforce;
}

/*
 * The `policy_ports` number that a set of rules has for an identity; 0: nothing is allowed. The first match is
 * final.
 */
static __always_inline __u32 policy_ports_of(__u32 set, __u32 identity)
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

/* Bits of a packet that rules can match: prefix_len of struct policy_port_key. */
enum policy_known {
	POLICY_KNOWN_PROTOCOL = 40, /* matches only rules without ports */
	POLICY_KNOWN_PORT = 56,
};

#define POLICY_DENIED -1

/* Protocol, port and enum policy_known in one argument: Linux 6.1 has no stack space for more. */
static __always_inline __u32 policy_proto_port(__u8 protocol, __be16 port, __u32 known)
{
	return (__u32)port << 16 | protocol << 8 | known;
}

/* The NetworkPolicy of a set that allows a connection, or POLICY_DENIED. */
GLOBAL_FN __s64 policy_allows(__u32 set, __u32 identity, __u32 proto_port)
{
	struct policy_port_key key = {.prefix_len = proto_port & 0xff, .protocol = proto_port >> 8};
	__be16 port = proto_port >> 16;
	const __u32 *policy;
	__u32 ports;

	if (!config_policy)
		return POLICY_DENIED;
	ports = policy_ports_of(set, identity);
	if (!ports)
		return POLICY_DENIED;
	key.ports = bpf_htonl(ports);
	__builtin_memcpy(key.port, &port, sizeof(key.port));
	policy = bpf_map_lookup_elem(&policy_ports, &key);
	return policy ? (__s64)*policy : POLICY_DENIED;
}

/*
 * Evaluates the rules of one end for the other: the NetworkPolicy that allows it, or a negative drop reason.
 * `proto_port` as in policy_proto_port. A node address need not be the node: kube-proxy masquerades forwarded
 * packets.
 */
static __always_inline __s64 policy_rules(__u32 set, const struct address *other, __u32 proto_port,
					  enum drop_reason forbidden)
{
	__u32 identity;
	__s64 policy;

	if (!set)
		return 0;
	if (set == POLICY_SET_PENDING)
		return -(__s64)(forbidden == DROP_INGRESS_POLICY ? DROP_INGRESS_POLICY_PENDING
								 : DROP_EGRESS_POLICY_PENDING);
	identity = policy_identity(other, IDENTITY_BY_ALL);
	if (unlikely(identity == IDENTITY_NODE))
		identity = policy_identity(other, IDENTITY_BY_CIDRS);
	policy = policy_allows(set, identity, proto_port);
	return policy == POLICY_DENIED ? -(__s64)forbidden : policy;
}
