/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every map, each with its one writer. Sizes are upper bounds. Arrays and LRU hashes are allocated whole, of other hashes 16 bytes for each
 * entry of their size (BPF_F_NO_PREALLOC: the buckets) and then each entry when it is made.
 */
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
 * Numbers of the present state of what is remembered about packets (enum generation_index): GENERATION_PODS is counted up by the
 * datapath, the other three by the agent, since neither could count up what the other writes as well.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GENERATION_MAX);
	__type(key, __u32);
	__type(value, __u32);
} generation SEC(".maps");

/*
 * Decisions for the packets that follow, by a hash of the addresses; a newer one replaces an older one. Each
 * of the two or three hash lookups of a decision costs some 30 ns in traffic, finding it here 10. Written by the
 * datapath.
 */
#define FLOW_CACHE_MAX 256
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_CACHE_MAX);
	__type(key, __u32);
	__type(value, struct flow_cache_entry);
} flow_cache SEC(".maps");

/*
 * What translation of one packet works on, for it would not fit on the stack: struct nat_state of lib/translate.h.
 * Written by the datapath.
 */
#define NAT_SCRATCH_SIZE 576
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, NAT_SCRATCH_SIZE);
} nat_scratch SEC(".maps");

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
} neigh_lease SEC(".maps");

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

/*
 * Where Services answer, with NodePorts and ports of hosts once for each address of this node. Written by the
 * agent. The agent sets the sizes of this map and of those below that follow the work (--services-max and others).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct frontend);
	__type(value, struct service);
} services SEC(".maps");

/* Backends by their set. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct backend_key);
	__type(value, struct backend);
} backends SEC(".maps");

/* Tables of consistent hashing (Maglev, NSDI 2016, 3.4), in blocks so that a small one takes little. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct maglev_key);
	__type(value, struct maglev_block);
} maglev SEC(".maps");

/* Which backend a client had. Written by the datapath; the least used go first when it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct client);
	__type(value, struct affinity);
} affinities SEC(".maps");

/* The same of clients outside of this node, so that they, who may write any source, push out none of its pods. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct client);
	__type(value, struct affinity);
} affinities_ext SEC(".maps");

/* Who may use the Services that have SERVICE_SOURCES. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} service_sources SEC(".maps");

/* Connections by the id of the Service, from the first one on. Written by the datapath; the agent deletes what is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct service_count);
} service_counts SEC(".maps");

/*
 * Connections that are translated packet by packet, each with an entry for both directions, from their first answer on.
 * Each has an element of `nat_slots`. Written by the datapath; the agent deletes what has timed out.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct nat_entry);
} nat SEC(".maps");

/*
 * The same for connections that nobody has answered yet, each with an element of `pending_slots`: a flood of them pushes out its own kind
 * only. Allocated whole. Written by the datapath; the agent deletes what has timed out.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tuple);
	__type(value, struct nat_entry);
} nat_pending SEC(".maps");

/* Which connections there may be in `nat`; those of gone or expired ones are free. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 131072);
	__type(key, __u32);
	__type(value, struct nat_slot);
} nat_slots SEC(".maps");

/* The same for `nat_pending`. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct nat_slot);
} pending_slots SEC(".maps");

/* How many slots each owner has. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAT_OWNERS_EXTERNAL + 1);
	__type(key, __u32);
	__type(value, struct nat_owner);
} nat_owners SEC(".maps");

/*
 * Pods of this node that take part in connections of `nat` whose other end is in the cluster: their packets
 * are looked up there before they go straight. The value is when that began (CLOCK_MONOTONIC, ns). Written by the
 * datapath; the agent deletes pods that have no connections any more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u64);
} nat_pods SEC(".maps");

/* Devices to the world, by their index. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

/* The uplinks that XDP may send through, by their index. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xdp_uplinks SEC(".maps");

/*
 * Packets that came in fragments, in the places of who has sent them: a new one replaces an older one of the same sender. Written by the datapath; the
 * agent deletes what is too old. Of senders that are gone the least used go first.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* How many ICMP errors were sent, and to whom. Written by the datapath; of those to whom none was sent for long the least used go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct icmp_ratelimit_key);
	__type(value, struct icmp_ratelimit_entry);
} icmp_ratelimit SEC(".maps");

/* The Service that a socket last used. Written by the datapath; it goes with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_entry);
} sock_storage SEC(".maps");

/* The same of TCP sockets, until they are closed. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOCK_TCP_MAX);
	__type(key, __u32);
	__type(value, struct sock_tcp_entry);
} sock_tcp SEC(".maps");

/*
 * The Services that an unconnected UDP socket used before that one, as far as it has used several. Written by the datapath; it goes
 * with the socket.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_udp_entries);
} sock_udp SEC(".maps");

/* Pods of this node that NetworkPolicies select. Written by the agent, one entry for each address of such a pod. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct policy_pod);
} policy_pods SEC(".maps");

/* Who is behind an address, for policies: pods of the cluster, ipBlocks of a single address, this node. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} identities SEC(".maps");

/* The same for prefixes, of ipBlocks and what they except. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct identity_cidr_key);
	__type(value, __u32);
} identity_cidrs SEC(".maps");

/*
 * Whom these two have last named, by a hash of the address; a newer answer replaces an older one. A trie of 100,000 blocks takes some
 * hundred ns in traffic, and a new connection asks for both of its ends several times. Written by the datapath.
 */
#define IDENTITY_CACHE_MAX 1024
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, IDENTITY_CACHE_MAX);
	__type(key, __u32);
	__type(value, struct identity_cache_entry);
} identity_cache SEC(".maps");

/* What a set of rules allows whom. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_key);
	__type(value, __u32);
} policies SEC(".maps");

/* Protocols and ports, by the number that `policies` gives. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_port_key);
	__type(value, __u32);
} policy_ports SEC(".maps");

/* What rules have allowed lately, by the hash of what was asked. Written by the datapath; whatever forbids something makes all out of date. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, POLICY_CACHE_MAX);
	__type(key, __u32);
	__type(value, struct policy_cache_entry);
} policy_cache SEC(".maps");

/*
 * Sessions of pods that policies select, and those that flows tell of, once they are no longer young. Each has a slot of the pod that it is charged
 * to, and goes when that is given to another one of the same pod; it is judged anew by its next packet then. Written by the datapath; the agent
 * deletes what has timed out.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct ct_entry);
} conntrack SEC(".maps");

/* The key of the session that has a slot. That may be gone, or have another slot by now. Written by the datapath; the agent deletes what is beyond a pod's share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ct_slot);
	__type(value, struct tuple);
} ct_slots SEC(".maps");

/* Pods of this node that sessions are charged to, by address. Written by the datapath; the agent deletes those of pods that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct ct_share);
} ct_shares SEC(".maps");

/* How many slots each of them has: the size of `conntrack`, divided. 0: the agent has not said it yet. Written by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} ct_share_size SEC(".maps");

/* Where sessions begin, by the hash of their keys. Written by the datapath; the agent has them moved to `conntrack` now and then. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CT_NEW_MAX);
	__type(key, __u32);
	__type(value, struct ct_new_entry);
} ct_new SEC(".maps");

/* What is asked about one packet, as for `nat_scratch`: struct policy_context of lib/policy_context.h. Written by the datapath. */
#define POLICY_SCRATCH_SIZE 384
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, POLICY_SCRATCH_SIZE);
} policy_scratch SEC(".maps");

/* The same for permits that end: two struct tuple. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 2 * sizeof(struct tuple));
} verdict_scratch SEC(".maps");

/* What flows tell, for the agent to read. Written by the datapath; size in bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FLOWS_SIZE);
} flows SEC(".maps");

/* Events that could not be told, by enum flow_kind * FLOW_LOSS_MAX + enum flow_loss. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_KIND_MAX * FLOW_LOSS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} flow_lost SEC(".maps");

/* The drops that events last told of, so that those which are alike need no event each; and how many of them are to be told of. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_DROPS_MAX);
	__type(key, __u32);
	__type(value, struct flow_drop);
} flow_drops SEC(".maps");

/* The same of the part that each sender has for itself. Written by the datapath; of those that had nothing to tell for long the least used go first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sender);
	__type(value, __u64);
} flow_shares SEC(".maps");

/* Up to when (CLOCK_MONOTONIC, ns) the CPU has used up what all have together of --flows-rate. Written by the datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} flow_ratelimit SEC(".maps");
