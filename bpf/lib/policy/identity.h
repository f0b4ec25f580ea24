/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The identity behind an address, as far as policies distinguish addresses. */
#pragma once

#include "config.h"
#include "lib/net/address.h"
#include "lib/net/verdict.h"

/* Which maps to search. An ipBlock that contains a node address applies to others that use that address. */
enum identity_source {
	IDENTITY_BY_ALL = 0,
	IDENTITY_BY_CIDRS = 1,
};

/* The identity of an address. */
GLOBAL_FN __u32 policy_identity(const struct address *a, __u32 by)
{
	struct identity_cidr_key key = {.prefix_len = 128};
	const __u32 *found = 0;

	if (!config_policy || !a)
		return IDENTITY_UNKNOWN;
	key.address = *a;
	if (by == IDENTITY_BY_ALL)
		found = bpf_map_lookup_elem(&identities, &key.address);
	if (!found)
		found = bpf_map_lookup_elem(&identity_cidrs, &key);
	return found ? *found : IDENTITY_UNKNOWN;
}
