/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps of --same-node=sockets: see maps.h. They exist only with that flag. */
#pragma once

#include "map.h"
#include "types_same_node.h"

/* Pods that opted in. Key: address. Value: same_node_pod. Writer: agent. */
MAP(sn_pods, HASH, 8192, BPF_F_NO_PREALLOC, struct address, struct same_node_pod);

/* Sockets in `sn_storage` of each pod. Key: cookie of the namespace. Writer: datapath; the agent recounts. */
MAP(sn_shares, HASH, 4096, BPF_F_NO_PREALLOC, __u64, __u32);

/*
 * TCP sockets of pods that opted in, connected to another such pod. Key: same_node_key. Value: socket. Writer:
 * datapath; the kernel removes closed ones, the agent those that have left.
 */
MAP(sn_sockets, SOCKHASH, 16384, 0, struct same_node_key, __u64);

/* State of sockets that are, or were, in `sn_sockets`, until they are closed. Key: socket. Value: same_node_sock. Writer: datapath. */
MAP(sn_storage, SK_STORAGE, 0, BPF_F_NO_PREALLOC, int, struct same_node_sock);

/* What happened. Index: enum same_node_count. Writer: datapath. */
MAP(sn_counts, PERCPU_ARRAY, SAME_NODE_COUNT_MAX, 0, __u32, __u64);

/* Number of the programs whose sockets may exchange data. Writer: agent. */
MAP(sn_active, ARRAY, 1, 0, __u32, __u64);

/*
 * Connections that policies do not allow any more, so that the agent destroys both sockets. Key: that of the conntrack
 * entry. Value: CLOCK_MONOTONIC, ns. Writer: datapath. LRU.
 */
MAP(sn_revoked, LRU_HASH, 1024, 0, struct tuple, __u64);
