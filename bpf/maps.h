/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every map, with its writer. Sizes are upper bounds. Arrays and LRU hashes are preallocated. Other hashes
 * (BPF_F_NO_PREALLOC) take 16 bytes of buckets for each possible entry, and memory for each actual one.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "types.h"

/* Local pods. Key: address. Value: endpoint. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/*
 * Prefixes of the cluster: pod CIDRs and node addresses. Key: prefix. Value: route. Writer: agent. A hash, since a
 * cluster has thousands of prefixes but few lengths: one lookup for each length takes 11 ns, an LPM trie 36 ns
 * with ten prefixes and more with more.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct route_key);
	__type(value, struct route);
} routes SEC(".maps");

/* Prefix lengths in `routes`. Index: 0 IPv4, 1 IPv6. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct prefix_lengths);
} route_lengths SEC(".maps");

/*
 * Generations of cached results. Index: enum generation_index. Writer: the datapath for GENERATION_PODS, the agent
 * for the others.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GENERATION_MAX);
	__type(key, __u32);
	__type(value, __u32);
} generation SEC(".maps");

/*
 * Flow cache, direct-mapped by a hash of the addresses. Value: flow_cache_entry. Writer: datapath. A hit takes 10
 * ns, each of the two or three lookups that it replaces 30 ns.
 */
#define FLOW_CACHE_MAX 256
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_CACHE_MAX);
	__type(key, __u32);
	__type(value, struct flow_cache_entry);
} flow_cache SEC(".maps");

/* Scratch memory of NAT: struct nat_state. Writer: datapath. */
#define NAT_SCRATCH_SIZE 576
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, NAT_SCRATCH_SIZE);
} nat_scratch SEC(".maps");

/* Dropped packets. Index: program * DROP_MAX + reason. Value: drop_count. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAM_MAX * DROP_MAX);
	__type(key, __u32);
	__type(value, struct drop_count);
} drops SEC(".maps");

/*
 * Until when next_hop_mac of `routes` is valid (CLOCK_MONOTONIC, ns). Writer: agent, which renews it while it
 * follows the neighbour table. When it has expired, bpf_redirect_neigh resolves every packet.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} neigh_lease SEC(".maps");

/* Local tunnel address. Index: 0 IPv4, 1 IPv6. Zero: the kernel chooses. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct address);
} tunnel_sources SEC(".maps");

/*
 * Frontends, with NodePorts and host ports once for each node address. Key: frontend. Value: service. Writer:
 * agent. The agent sets the size of this map and of others that follow the work (--services-max and others).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct frontend);
	__type(value, struct service);
} services SEC(".maps");

/* Backends. Key: set and index. Value: backend. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct backend_key);
	__type(value, struct backend);
} backends SEC(".maps");

/*
 * Maglev tables, in blocks so that small ones take little memory. Key: table and block. Value: maglev_block.
 * Writer: agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct maglev_key);
	__type(value, struct maglev_block);
} maglev SEC(".maps");

/* Session affinity of local clients. Key: client. Value: affinity. Writer: datapath. LRU. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct client);
	__type(value, struct affinity);
} affinities SEC(".maps");

/*
 * Session affinity of external clients. Separate, so that forged sources evict no local client. Writer: datapath.
 * LRU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct client);
	__type(value, struct affinity);
} affinities_ext SEC(".maps");

/* loadBalancerSourceRanges. Key: Service and prefix. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} service_sources SEC(".maps");

/*
 * Connections of Services. Key: Service id. Value: service_count. Writer: datapath; the agent deletes those of
 * removed Services.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct service_count);
} service_counts SEC(".maps");

/*
 * Established NAT entries, one for each direction. Key: tuple before NAT. Value: nat_entry. Writer: datapath; the
 * agent deletes expired ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct nat_entry);
} nat SEC(".maps");

/*
 * Pending NAT entries: connections without a reply. A flood evicts pending entries only. Preallocated. Key and
 * value as `nat`. Writer: datapath; the agent deletes expired ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tuple);
	__type(value, struct nat_entry);
} nat_pending SEC(".maps");

/* Slots of connections in `nat`. Value: nat_slot. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 131072);
	__type(key, __u32);
	__type(value, struct nat_slot);
} nat_slots SEC(".maps");

/* Slots of connections in `nat_pending`. Value: nat_slot. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct nat_slot);
} pending_slots SEC(".maps");

/* Slots of each owner. Index: hash of the owner. Value: nat_owner. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAT_OWNERS_EXTERNAL + 1);
	__type(key, __u32);
	__type(value, struct nat_owner);
} nat_owners SEC(".maps");

/*
 * Local pods with translated connections in the cluster: their packets are looked up in `nat` first. Key: address.
 * Value: time of the last new connection (CLOCK_MONOTONIC, ns). Writer: datapath; the agent deletes pods without
 * connections.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u64);
} nat_pods SEC(".maps");

/* Devices to external networks. Key: ifindex. Value: uplink. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

/* Uplinks that XDP may redirect to. Key: ifindex. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xdp_uplinks SEC(".maps");

/* Fragmented packets. Key: sender and slot. Value: fragment. Writer: datapath; the agent deletes old ones. LRU. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* ICMP errors sent in this second. Key: sender and kind. Value: icmp_ratelimit_entry. Writer: datapath. LRU. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct icmp_ratelimit_key);
	__type(value, struct icmp_ratelimit_entry);
} icmp_ratelimit SEC(".maps");

/* Translation of a socket. Key: socket. Value: sock_entry. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_entry);
} sock_storage SEC(".maps");

/* Translation of TCP sockets until they are closed. Index: socket cookie. Value: sock_tcp_entry. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOCK_TCP_MAX);
	__type(key, __u32);
	__type(value, struct sock_tcp_entry);
} sock_tcp SEC(".maps");

/* Earlier Services of unconnected UDP sockets. Key: socket. Value: sock_udp_entries. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_udp_entries);
} sock_udp SEC(".maps");

/* Local pods that NetworkPolicies select. Key: address. Value: policy_pod. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct policy_pod);
} policy_pods SEC(".maps");

/* Identities of addresses: pods, this node. Key: address. Value: identity. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} identities SEC(".maps");

/* Identities of prefixes: ipBlocks and their exceptions. Key: prefix. Value: identity. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct identity_cidr_key);
	__type(value, __u32);
} identity_cidrs SEC(".maps");

/* Rules of a set for an identity. Key: policy_key. Value: number of `policy_ports`. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_key);
	__type(value, __u32);
} policies SEC(".maps");

/* Allowed protocols and ports. Key: policy_port_key. Value: number of the NetworkPolicy. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_port_key);
	__type(value, __u32);
} policy_ports SEC(".maps");

/*
 * Conntrack entries of pods that policies select or flows observe. Key: tuple (ct_key). Value: ct_entry. Each has
 * a slot of its owner and is evicted with it; its next packet is then evaluated again. Writer: datapath; the agent
 * deletes expired ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tuple);
	__type(value, struct ct_entry);
} conntrack SEC(".maps");

/*
 * Keys of conntrack entries by slot. The entry may be gone, or have another slot by now. Key: ct_slot. Value:
 * tuple. Writer: datapath; the agent deletes slots beyond a share.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ct_slot);
	__type(value, struct tuple);
} ct_slots SEC(".maps");

/*
 * Local pods that own conntrack entries. Key: address. Value: ct_share. Writer: datapath; the agent deletes those
 * of deleted pods.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct ct_share);
} ct_shares SEC(".maps");

/* Slots of each pod: the size of `conntrack` divided by the pods. 0: not set yet. Writer: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} ct_share_size SEC(".maps");

/*
 * New conntrack entries, direct-mapped by a hash of the key. Value: ct_new_entry. Writer: datapath; the agent runs
 * flush_conntrack, which moves them to `conntrack`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CT_NEW_MAX);
	__type(key, __u32);
	__type(value, struct ct_new_entry);
} ct_new SEC(".maps");

/* Scratch memory of policies: struct policy_context. Writer: datapath. */
#define POLICY_SCRATCH_SIZE 384
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, POLICY_SCRATCH_SIZE);
} policy_scratch SEC(".maps");

/* Scratch memory of verdict_cache_end: struct verdict_scratch. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 2 * sizeof(struct tuple));
} verdict_scratch SEC(".maps");

/* Flow events: a ring buffer of struct flow_event, size in bytes. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FLOWS_SIZE);
} flows SEC(".maps");

/* Lost flow events. Index: enum flow_kind * FLOW_LOSS_MAX + enum flow_loss. Value: count. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_KIND_MAX * FLOW_LOSS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} flow_lost SEC(".maps");

/*
 * Drops that were reported last, so that similar ones share an event. Index: hash of the drop. Value: flow_drop.
 * Writer: datapath.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOW_DROPS_MAX);
	__type(key, __u32);
	__type(value, struct flow_drop);
} flow_drops SEC(".maps");

/*
 * Rate of flow events of each sender. Key: sender. Value: time up to which its share is used. Writer: datapath.
 * LRU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sender);
	__type(value, __u64);
} flow_shares SEC(".maps");

/*
 * Rate of flow events of the rest of --flows-rate. Value: time up to which it is used (CLOCK_MONOTONIC, ns).
 * Writer: datapath.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} flow_ratelimit SEC(".maps");
