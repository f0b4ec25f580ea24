/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of types.h for sockets that meet on one node (--same-node=sockets). */
#pragma once

#include "types.h"

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Value of `sn_pods`: a local pod that opted in. */
struct same_node_pod {
	__u64 netns; /* cookie of its network namespace */
	__u32 share; /* sockets that it may have in `sn_storage` */
	__u32 padding;
};

/*
 * Key of `sn_sockets`: a TCP socket of a pod. The namespace makes it unique: pods may use any address in their own. The
 * other end's makes it the same connection: a later pod may have the address of the one that the socket talked to.
 */
struct same_node_key {
	struct address local, remote;
	__u64 netns, peer_netns;
	__be16 local_port, remote_port;
	__u32 padding;
};

/* How a socket sends. It never goes back to an earlier state. */
enum same_node_state {
	SAME_NODE_NEW = 0,     /* nothing sent yet */
	SAME_NODE_SOCKETS = 1, /* into the queue of the other socket */
	SAME_NODE_PACKETS = 2, /* as packets, for the rest of the connection */
};

/* Index of `sn_counts`. The first ones are why a socket went back to packets. */
enum same_node_count {
	SAME_NODE_LEFT_BULK = 0,       /* a large message, or too much unread */
	SAME_NODE_LEFT_POLICY = 1,     /* no allowed conntrack entry */
	SAME_NODE_LEFT_OPT_OUT = 2,    /* a pod no longer opts in */
	SAME_NODE_LEFT_PEER = 3,       /* the other socket is not in the map */
	SAME_NODE_LEFT_UNSUITABLE = 4, /* data was sent before, or kTLS */
	SAME_NODE_LEFT_AGENT = 5,      /* an agent with other programs has started */
	SAME_NODE_LEFT_MAX = 6,
	SAME_NODE_JOINED = 6,	/* sockets added to `sn_sockets` */
	SAME_NODE_NO_SHARE = 7, /* sockets beyond their pod's share */
	SAME_NODE_MESSAGES = 8, /* messages from socket to socket */
	SAME_NODE_BYTES = 9,	/* their bytes */
	SAME_NODE_COUNT_MAX = 10,
};

/* Value of `sn_storage`: a socket that is, or was, in `sn_sockets`. Written under the socket's lock. */
struct same_node_sock {
	struct same_node_key peer; /* key of the other socket */
	struct tuple session;	   /* key of the conntrack entry */
	__u64 netns;		   /* cookie of its own namespace */
	__u64 joined, left;	   /* CLOCK_MONOTONIC, ns; `left`: of SAME_NODE_PACKETS */
	__u64 evaluated;	   /* `created` of the conntrack entry that was evaluated last; 0: none */
	__u32 revision;		   /* its policy revision */
	__u32 tables;		   /* GENERATION_TABLES of `selected` and of the opt-ins */
	__u32 unread;		   /* bytes sent since the other socket's queue was empty last */
	__u8 checked;		   /* `tables` is valid */
	__u8 selected;		   /* enum same_node_selected */
	__u8 reversed;		   /* the socket is the destination of `session` */
	__u8 state;		   /* enum same_node_state */
	__u8 reason;		   /* enum same_node_count, of SAME_NODE_PACKETS */
	__u8 padding[7];
};

/* Which ends of a session policies select. */
enum same_node_selected {
	SAME_NODE_SELECTED_SOURCE = 1 << 0,
	SAME_NODE_SELECTED_DESTINATION = 1 << 1,
};

/* Record that list_same_node writes for each socket of `sn_storage`. */
struct same_node_record {
	struct same_node_key peer; /* key of the other socket; reversed, with `netns`, its own */
	__u64 netns;
	__u64 left;
	__u32 state; /* enum same_node_state */
	__u8 mapped; /* not 0: in `sn_sockets` */
	__u8 unread; /* not 0: its application has not read all data of the other socket */
	__u8 padding[2];
};

#pragma clang diagnostic pop

const volatile struct same_node_abi {
	enum same_node_state state;
	enum same_node_count count;
	enum same_node_selected selected;
	struct same_node_record record;
} same_node_abi __attribute__((used)) = {};
