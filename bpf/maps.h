/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map, each with its one writer. Sizes are upper bounds: entries are allocated when they are made. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "types.h"

/* Addresses of the pods of this node. Written by the agent, one entry for each address of a pod. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* Prefixes of the cluster. Written by the agent: pod ranges and addresses of all nodes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct route_key);
	__type(value, struct route);
} routes SEC(".maps");

/* Dropped packets by program and reason, at index program * DROP_MAX + reason. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAM_MAX * DROP_MAX);
	__type(key, __u32);
	__type(value, struct drop_count);
} drops SEC(".maps");

/*
 * Until when (CLOCK_MONOTONIC, ns) the agent vouches for the next_hop_mac of `routes`. The agent follows the
 * kernel's neighbour table and renews the lease; once it has lapsed, the kernel resolves each packet.
 * Written by the agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");
