/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every map, with its writer. Sizes are upper bounds. Arrays and LRU hashes are preallocated. Other hashes
 * (BPF_F_NO_PREALLOC) take 16 bytes of buckets for each possible entry, and memory for each actual one.
 */
#pragma once

#include "map.h"
#include "types.h"

/* Local pods. Key: address. Value: endpoint. Writer: agent. */
MAP(endpoints, HASH, 4096, BPF_F_NO_PREALLOC, struct address, struct endpoint);

/* Local pods with macvlan devices. Key: parent and the pod's MAC. Value: macvlan_pod. Writer: agent. */
MAP(macvlan_pods, HASH, 4096, BPF_F_NO_PREALLOC, struct macvlan_key, struct macvlan_pod);

/*
 * Bandwidth limits of what pods send. Key: host end. Value: limit. Writer: agent; the datapath moves the clocks.
 */
MAP(limits, HASH, 4096, BPF_F_NO_PREALLOC, __u32, struct limit);

/*
 * Prefixes of the cluster: pod CIDRs and node addresses. Key: prefix. Value: route. Writer: agent. A hash, since a
 * cluster has thousands of prefixes but few lengths: one lookup for each length takes 11 ns, an LPM trie 36 ns
 * with ten prefixes and more with more.
 */
MAP(routes, HASH, 32768, BPF_F_NO_PREALLOC, struct route_key, struct route);

/* Prefix lengths in `routes`. Index: 0 IPv4, 1 IPv6. Writer: agent. */
MAP(route_lengths, ARRAY, 2, 0, __u32, struct prefix_lengths);

/*
 * Generations of cached results. Index: enum generation_index. Writer: the datapath for GENERATION_PODS, the agent
 * for the others.
 */
MAP(generation, ARRAY, GENERATION_MAX, 0, __u32, __u32);

/*
 * Flow cache, direct-mapped by a hash of the addresses. Value: flow_cache_entry. Writer: datapath. A hit takes 10
 * ns, each of the two or three lookups that it replaces 30 ns.
 */
#define FLOW_CACHE_MAX 256
MAP(flow_cache, PERCPU_ARRAY, FLOW_CACHE_MAX, 0, __u32, struct flow_cache_entry);

/* Scratch memory of NAT: struct nat_state. Writer: datapath. */
#define NAT_SCRATCH_SIZE 576
MAP(nat_scratch, PERCPU_ARRAY, 1, 0, __u32, __u8[NAT_SCRATCH_SIZE]);

/* Dropped packets. Index: program * DROP_MAX + reason. Value: drop_count. Writer: datapath. */
#define DROPS_MAX (PROGRAM_MAX * DROP_MAX)
MAP(drops, PERCPU_ARRAY, DROPS_MAX, 0, __u32, struct drop_count);

/*
 * Until when next_hop_mac of `routes` is valid (CLOCK_MONOTONIC, ns). Writer: agent, which renews it while it
 * follows the neighbour table. When it has expired, bpf_redirect_neigh resolves every packet.
 */
MAP(neigh_lease, ARRAY, 1, 0, __u32, __u64);

/* Local tunnel address. Index: 0 IPv4, 1 IPv6. Zero: the kernel chooses. Writer: agent. */
MAP(tunnel_sources, ARRAY, 2, 0, __u32, struct address);

/*
 * Frontends, with NodePorts and host ports once for each node address. Key: frontend. Value: service. Writer:
 * agent. The agent sets the size of this map and of others that follow the work (--services-max and others).
 */
MAP(services, HASH, 65536, BPF_F_NO_PREALLOC, struct frontend, struct service);

/* Backends. Key: set and index. Value: backend. Writer: agent. */
MAP(backends, HASH, 262144, BPF_F_NO_PREALLOC, struct backend_key, struct backend);

/*
 * Maglev tables, in blocks so that small ones take little memory. Key: table and block. Value: maglev_block.
 * Writer: agent.
 */
MAP(maglev, HASH, 131072, BPF_F_NO_PREALLOC, struct maglev_key, struct maglev_block);

/* Session affinity of local clients. Key: client. Value: affinity. Writer: datapath. LRU. */
MAP(affinities, LRU_HASH, 16384, 0, struct client, struct affinity);

/*
 * Session affinity of external clients. Separate, so that forged sources evict no local client. Writer: datapath.
 * LRU.
 */
MAP(affinities_ext, LRU_HASH, 16384, 0, struct client, struct affinity);

/* loadBalancerSourceRanges. Key: Service and prefix. Writer: agent. */
MAP(service_sources, LPM_TRIE, 65536, BPF_F_NO_PREALLOC, struct source_key, __u8);

/*
 * Connections of Services. Key: Service id. Value: service_count. Writer: datapath; the agent deletes those of
 * removed Services.
 */
MAP(service_counts, PERCPU_HASH, 65536, BPF_F_NO_PREALLOC, __u32, struct service_count);

/*
 * Established NAT entries, one for each direction. Key: tuple before NAT. Value: nat_entry. Writer: datapath; the
 * agent deletes expired ones.
 */
MAP(nat, HASH, 262144, BPF_F_NO_PREALLOC, struct tuple, struct nat_entry);

/*
 * Pending NAT entries: connections without a reply. A flood evicts pending entries only. Preallocated. Key and
 * value as `nat`. Writer: datapath; the agent deletes expired ones.
 */
MAP(nat_pending, HASH, 16384, 0, struct tuple, struct nat_entry);

/* Slots of connections in `nat`. Value: nat_slot. Writer: datapath. */
MAP(nat_slots, ARRAY, 131072, 0, __u32, struct nat_slot);

/* Slots of connections in `nat_pending`. Value: nat_slot. Writer: datapath. */
MAP(pending_slots, ARRAY, 8192, 0, __u32, struct nat_slot);

/* Slots of each owner. Index: hash of the owner. Value: nat_owner. Writer: datapath. */
MAP(nat_owners, ARRAY, NAT_OWNERS_EXTERNAL + 1, 0, __u32, struct nat_owner);

/*
 * Local pods with translated connections in the cluster: their packets are looked up in `nat` first. Key: address.
 * Value: time of the last new connection (CLOCK_MONOTONIC, ns). Writer: datapath; the agent deletes pods without
 * connections.
 */
MAP(nat_pods, HASH, 4096, BPF_F_NO_PREALLOC, struct address, __u64);

/* Devices to external networks. Key: ifindex. Value: uplink. Writer: agent. */
MAP(uplinks, HASH, 64, BPF_F_NO_PREALLOC, __u32, struct uplink);

/* Uplinks that XDP may redirect to. Key: ifindex. Writer: agent. */
MAP(xdp_uplinks, DEVMAP_HASH, 64, 0, __u32, __u32);

/* Fragmented packets. Key: sender and slot. Value: fragment. Writer: datapath; the agent deletes old ones. LRU. */
MAP(fragments, LRU_HASH, 16384, 0, struct fragment_key, struct fragment);

/* ICMP errors sent in this second. Key: sender and kind. Value: icmp_ratelimit_entry. Writer: datapath. LRU. */
MAP(icmp_ratelimit, LRU_HASH, 4096, 0, struct icmp_ratelimit_key, struct icmp_ratelimit_entry);

/* Translation of a socket. Key: socket. Value: sock_entry. Writer: datapath. */
MAP(sock_storage, SK_STORAGE, 0, BPF_F_NO_PREALLOC, int, struct sock_entry);

/* Translation of TCP sockets until they are closed. Index: socket cookie. Value: sock_tcp_entry. Writer: datapath. */
MAP(sock_tcp, ARRAY, SOCK_TCP_MAX, 0, __u32, struct sock_tcp_entry);

/* Earlier Services of unconnected UDP sockets. Key: socket. Value: sock_udp_entries. Writer: datapath. */
MAP(sock_udp, SK_STORAGE, 0, BPF_F_NO_PREALLOC, int, struct sock_udp_entries);

/* Local pods that NetworkPolicies select. Key: address. Value: policy_pod. Writer: agent. */
MAP(policy_pods, HASH, 4096, BPF_F_NO_PREALLOC, struct address, struct policy_pod);

/* Identities of addresses: pods, this node. Key: address. Value: identity. Writer: agent. */
MAP(identities, HASH, 262144, BPF_F_NO_PREALLOC, struct address, __u32);

/* Identities of prefixes: ipBlocks and their exceptions. Key: prefix. Value: identity. Writer: agent. */
MAP(identity_cidrs, LPM_TRIE, 262144, BPF_F_NO_PREALLOC, struct identity_cidr_key, __u32);

/* Rules of a set for an identity. Key: policy_key. Value: number of `policy_ports`. Writer: agent. */
MAP(policies, HASH, 262144, BPF_F_NO_PREALLOC, struct policy_key, __u32);

/* Allowed protocols and ports. Key: policy_port_key. Value: number of the NetworkPolicy. Writer: agent. */
MAP(policy_ports, LPM_TRIE, 65536, BPF_F_NO_PREALLOC, struct policy_port_key, __u32);

/*
 * Conntrack entries of pods that policies select or flows observe. Key: tuple (ct_key). Value: ct_entry. Each has
 * a slot of its owner and is evicted with it; its next packet is then evaluated again. Writer: datapath; the agent
 * deletes expired ones.
 */
MAP(conntrack, HASH, 262144, BPF_F_NO_PREALLOC, struct tuple, struct ct_entry);

/*
 * Keys of conntrack entries by slot. The entry may be gone, or have another slot by now. Key: ct_slot. Value:
 * tuple. Writer: datapath; the agent deletes slots beyond a share.
 */
MAP(ct_slots, HASH, 262144, BPF_F_NO_PREALLOC, struct ct_slot, struct tuple);

/*
 * Local pods that own conntrack entries. Key: address. Value: ct_share. Writer: datapath; the agent deletes those
 * of deleted pods.
 */
MAP(ct_shares, HASH, 8192, BPF_F_NO_PREALLOC, struct address, struct ct_share);

/* Slots of each pod: the size of `conntrack` divided by the pods. 0: not set yet. Writer: agent. */
MAP(ct_share_size, ARRAY, 1, 0, __u32, __u32);

/*
 * New conntrack entries, direct-mapped by a hash of the key. Value: ct_new_entry. Writer: datapath; the agent runs
 * flush_conntrack, which moves them to `conntrack`.
 */
MAP(ct_new, ARRAY, CT_NEW_MAX, 0, __u32, struct ct_new_entry);

/* Scratch memory of policies: struct policy_context. Writer: datapath. */
#define POLICY_SCRATCH_SIZE 384
MAP(policy_scratch, PERCPU_ARRAY, 1, 0, __u32, __u8[POLICY_SCRATCH_SIZE]);

/* Scratch memory of verdict_cache_end: struct verdict_scratch. Writer: datapath. */
MAP(verdict_scratch, PERCPU_ARRAY, 1, 0, __u32, __u8[2 * sizeof(struct tuple)]);

/* Flow events: a ring buffer of struct flow_event, size in bytes. Writer: datapath. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FLOWS_SIZE);
} flows SEC(".maps");

/* Lost flow events. Index: enum flow_kind * FLOW_LOSS_MAX + enum flow_loss. Value: count. Writer: datapath. */
#define FLOW_LOST_MAX (FLOW_KIND_MAX * FLOW_LOSS_MAX)
MAP(flow_lost, PERCPU_ARRAY, FLOW_LOST_MAX, 0, __u32, __u64);

/*
 * Drops that were reported last, so that similar ones share an event. Index: hash of the drop. Value: flow_drop.
 * Writer: datapath.
 */
MAP(flow_drops, PERCPU_ARRAY, FLOW_DROPS_MAX, 0, __u32, struct flow_drop);

/*
 * Rate of flow events of each sender. Key: sender. Value: time up to which its share is used. Writer: datapath.
 * LRU.
 */
MAP(flow_shares, LRU_PERCPU_HASH, 4096, 0, struct sender, __u64);

/*
 * Rate of flow events of the rest of --flows-rate. Value: time up to which it is used (CLOCK_MONOTONIC, ns).
 * Writer: datapath.
 */
MAP(flow_ratelimit, PERCPU_ARRAY, 1, 0, __u32, __u64);
