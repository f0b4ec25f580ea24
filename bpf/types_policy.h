/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of types.h that is about policies, sessions, and what flows tell. */
#pragma once

#include "types.h"

/* Value of `policy_pods`: the sets of rules that hold for a pod of this node. */
struct policy_pod {
	__u32 ingress, egress; /* 0: not isolated in that direction; POLICY_SET_PENDING: nothing is allowed */
};

#define POLICY_SET_PENDING 0xffffffffU

/* Value of `identity_cache`: who is behind an address, as long as generation[GENERATION_IDENTITIES] is what it was then. */
struct identity_cache_entry {
	struct address address;
	__u32 identity;
	__u32 generation; /* 0: nobody was asked about */
};
_Static_assert(sizeof(struct identity_cache_entry) == 24, "identified has no hidden padding");

/* Numbers of `identities` and `identity_cidrs` with a meaning of their own. */
enum identity {
	IDENTITY_UNKNOWN = 0,	 /* neither a pod nor in any ipBlock; in `policies`: whoever has no entry of its own */
	IDENTITY_NODE = 1,	 /* this node itself */
	IDENTITY_POD = 1U << 31, /* a bit: pods have it. Alone, in `policies`: every pod that has no entry of its own */
};

/* Key of `identity_cidrs`: a prefix, as in struct route_key. */
struct identity_cidr_key {
	__u32 prefix_len;
	struct address address; /* bits behind the prefix are zero */
};
_Static_assert(sizeof(struct identity_cidr_key) == 20, "block_key is a map key");

/* Key of `policies`: who asks whom. The value is the number of what is allowed, in `policy_ports`; 0: nothing. */
struct policy_key {
	__u32 set;
	__u32 identity; /* of the other end: in a set for ingress the sender, in one for egress the receiver */
};

/*
 * Key of `policy_ports`. prefix_len is 32 for every protocol, 40 for every port of one, 56 for a port, and between for a
 * range. The value is the number of the NetworkPolicy that allows.
 */
struct policy_port_key {
	__u32 prefix_len;
	__be32 ports;  /* the number in `policies` */
	__u8 protocol; /* IP protocol number */
	__u8 port[2];  /* most significant byte first: a trie compares bits */
	__u8 padding;
};
_Static_assert(sizeof(struct policy_port_key) == 12, "policy_port_key is a map key");

/*
 * Value of `conntrack`, whose key is a struct tuple with the lower end as its source (ct_key). Index 0 of what is counted is
 * the direction of who opened it, 1 that of the answers.
 */
struct ct_entry {
	__u64 created, seen; /* CLOCK_MONOTONIC, ns; seen to the second */
	__u64 packets[2];
	__u64 bytes[2];	       /* with the link-layer header */
	__u32 revision;	       /* under which it was judged */
	__u32 ingress, egress; /* numbers of the NetworkPolicies that allow it; 0 without one */
	__u32 flags;	       /* enum ct_flag */
	/* Identities of who opened it and of the other end, when it began; 0 where flows do not tell of it. */
	__u32 source, destination;
	__u32 slot; /* in `ct_slots`, of the pod that it is charged to; CT_NO_SLOT while it is young */
	__u32 padding;
};
_Static_assert(sizeof(struct ct_entry) == 80, "session has no hidden padding");

#define CT_NO_SLOT 0xffffffffU

/*
 * The rings of slots that a pod has: sessions that it opened itself and those that others opened to it, and of each those that only began, which
 * anybody can make as many of as packets, and those that last (CT_ASSURED). A full ring evicts its own sessions only.
 */
enum ct_ring {
	CT_RING_ASSURED = 1 << 0,
	CT_RING_INBOUND = 1 << 1,
	CT_RING_MAX = 4,
};

/* Where struct ct_slot has the ring, above the index in it. */
#define CT_RING_SHIFT 24

/* Key of `ct_slots`. */
struct ct_slot {
	struct address pod;
	__u32 slot; /* enum ct_ring << CT_RING_SHIFT | index */
};
_Static_assert(sizeof(struct ct_slot) == 20, "session_slot is a map key");

/* Value of `ct_shares`: how many sessions each ring of a pod has been given. The next one gets this slot, modulo the ring's size. */
struct ct_share {
	__u32 next[CT_RING_MAX];
};

/* Parameter of flush_pod. */
struct flush_pod_args {
	struct address pod;
};

/* Value of `policy_cache`: what a set of rules has allowed, as long as generation[GENERATION_POLICY] is what it was then. */
struct policy_cache_entry {
	__u32 revision;
	__u32 set, identity;
	__u32 proto_port; /* protocol and port, as policy_proto_port of lib/policy.h has them */
	__u32 policy;	  /* that allows it */
};
_Static_assert(sizeof(struct policy_cache_entry) == 20, "ruling has no hidden padding");

#define POLICY_CACHE_MAX 256

/* Value of `ct_new`: a place, and the session that is in it. */
struct ct_new_entry {
	struct tuple key; /* as that of `conntrack`; protocol 0: there is none */
	__u32 lock;	  /* not 0: somebody puts another one here, moves what is here or tells of it */
	__u32 unreplied_until; /* up to when `conntrack` may have one of this place that waits for its first answer, as ct_new_clock counts */
	struct ct_entry entry;
};
_Static_assert(sizeof(struct ct_new_entry) == 128, "young_session has no hidden padding");

#define CT_NEW_MAX 1024

enum ct_flag {
	CT_REVERSED = 1 << 0,	  /* who opened it is the key's destination */
	CT_REPLIED = 1 << 1,	  /* a packet of the other direction was seen */
	CT_FIN = 1 << 2,	  /* TCP: who opened it has sent FIN */
	CT_REPLY_FIN = 1 << 3,	  /* TCP: the other end has */
	CT_RESET = 1 << 4,	  /* TCP: RST was seen */
	CT_REPORTED_END = 1 << 5, /* flows have told that TCP has ended it */
	CT_EGRESS = 1 << 6,	  /* egress was judged here */
	CT_INGRESS = 1 << 7,	  /* ingress was judged here */
	CT_REVOKED = 1 << 8,	  /* it is no longer allowed, which has been told */
	CT_MIDSTREAM = 1 << 9,	  /* TCP: its beginning was not seen, and it counts as opened by who has sent first */
	CT_REPORTED = 1 << 10,	  /* flows have told of it, or could not */
	CT_ASSURED = 1 << 11,	  /* who opened it went on after the first answer */
	CT_INBOUND = 1 << 12,	  /* it is charged to the end that did not open it: who did is no pod here */
};

/* What a flow event tells. */
enum flow_kind {
	FLOW_OPENED = 0,   /* a session begins: its first packet was allowed */
	FLOW_ANSWERED = 1, /* its first answer has come */
	FLOW_CLOSED = 2,   /* TCP has ended it, with totals; sessions that time out are told of by the agent */
	FLOW_DROPPED = 3,  /* a packet was dropped */
	FLOW_REVOKED = 4,  /* a session is no longer allowed, with totals */
	FLOW_KIND_MAX = 5,
};

/* What flows tell of (--flows). */
enum flow_mode {
	FLOWS_OFF = 0,
	FLOWS_DROPS = 1,  /* drops of every reason */
	FLOWS_POLICY = 2, /* drops, and sessions of pods that policies select */
	FLOWS_ALL = 3,	  /* drops, and sessions of every pod */
};

/* An entry of `flows`. Of a drop, `tuple` is the packet's, as far as it can be read, and as pods know it if policies drop it; else in the direction of who opened the session. */
struct flow_event {
	__u64 time;    /* CLOCK_MONOTONIC, ns */
	__u64 created; /* as in struct ct_entry; 0 of a drop */
	struct tuple tuple;
	__u64 packets[2],
		bytes[2]; /* as in struct ct_entry; of a drop, index 0: of this kind since it was last told of */
	__u32 ifindex;	  /* the device that the packet came from or goes to */
	__u32 source, destination; /* identities; 0 where nobody asked */
	__u32 ingress, egress;	   /* as in struct ct_entry */
	__u8 kind;		   /* enum flow_kind */
	__u8 reason;		   /* enum drop_reason */
	__u8 program;		   /* enum program */
	__u8 tcp_flags;		   /* enum transport_flag */
	__u8 first;		   /* not 0: no event has told of the session before */
	__u8 padding[7];
};
/* With the 8 bytes that the kernel puts before it, it is two lines of the caches. */
_Static_assert(sizeof(struct flow_event) == 120, "flow_event has no hidden padding");

/* Index of `flow_lost`: why an event was not told. */
enum flow_loss {
	FLOW_LOSS_FULL = 0,    /* nobody read fast enough */
	FLOW_LOSS_LIMITED = 1, /* more drops than --flows-rate */
	FLOW_LOSS_EVICTED =
		2, /* drops like one that was told, counted to be told of later, when another kind took their place */
	FLOW_LOSS_MAX = 3,
};

/* Size of `flows` in bytes, a power of two. */
#define FLOWS_SIZE (1 << 20)

/* Value of `flow_drops`: drops that are alike, and what events tell of them. */
struct flow_drop {
	__u64 reported;	      /* CLOCK_MONOTONIC, ns: when an event last told of them; 0: never */
	__u64 packets, bytes; /* since then, not told of yet */
	__u32 hash;	      /* of what they have in common: tuple, reason and program */
	__u32 ifindex;
	struct tuple tuple;
	__u32 source, destination; /* as in flow_event */
	__u8 reason;		   /* enum drop_reason */
	__u8 program;		   /* enum program */
	__u8 tcp_flags;		   /* of the one that was told of */
	__u8 padding[5];
};
_Static_assert(sizeof(struct flow_drop) == 88, "flow_drop has no hidden padding");

#define FLOW_DROPS_MAX 256
