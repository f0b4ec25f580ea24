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

/*
 * Prefixes of the cluster. Written by the agent: pod ranges and addresses of all nodes. A hash and not a
 * trie: a cluster has thousands of prefixes but few lengths, and a lookup for each length (some 11 ns) costs
 * less than walking a trie, which takes 36 ns with ten prefixes and more with more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct route_key);
	__type(value, struct route);
} routes SEC(".maps");

/* Which lengths to look for in `routes`: at 0 those of IPv4, at 1 those of IPv6. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct prefix_lengths);
} route_lengths SEC(".maps");

/*
 * The number of the tables' present state: the agent counts it up after every change of `endpoints` and
 * `routes`. Written by the agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} generation SEC(".maps");

/*
 * Decisions for the packets that follow, by a hash of the addresses; a newer one replaces an older one. Each
 * of the two or three hash lookups of a decision costs some 30 ns in traffic, finding it here 10. Written by the
 * datapath.
 */
#define DECISIONS_MAX 256
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECISIONS_MAX);
	__type(key, __u32);
	__type(value, struct decision);
} decisions SEC(".maps");

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

/*
 * This node's own end of every tunnel: at 0 the address for ends of IPv4, at 1 for those of IPv6; zero where the
 * kernel is to choose. Written by the agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct address);
} tunnel_sources SEC(".maps");
