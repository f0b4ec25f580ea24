/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of types.h for policies, conntrack and flows. */
#pragma once

#include "types.h"

/* Value of `policy_pods`: the rule sets of a local pod. */
struct policy_pod {
	__u32 ingress, egress; /* 0: not isolated in that direction; POLICY_SET_PENDING: nothing is allowed */
};

#define POLICY_SET_PENDING 0xffffffffU

/* Special identities. */
enum identity {
	IDENTITY_UNKNOWN = 0,	 /* neither a pod nor in an ipBlock; in `policies`: default for every identity */
	IDENTITY_NODE = 1,	 /* this node itself */
	IDENTITY_POD = 1U << 31, /* bit of every pod; alone in `policies`: default for pods */
};

/* Key of `identity_cidrs`: a prefix, as in struct route_key. */
struct identity_cidr_key {
	__u32 prefix_len;
	struct address address; /* host bits are zero */
};

/* Key of `policies`. The value is a number of `policy_ports`; 0: nothing is allowed. */
struct policy_key {
	__u32 set;
	__u32 identity; /* of the other end: the sender in an ingress set, the receiver in an egress set */
};

/*
 * Key of `policy_ports`. prefix_len is 32 for all protocols, 40 for all ports of a protocol, 56 for one port, in
 * between for a port range. The value is the number of the NetworkPolicy.
 */
struct policy_port_key {
	__u32 prefix_len;
	__be32 ports;  /* number of `policies` */
	__u8 protocol; /* IP protocol number */
	__u8 port[2];  /* in network order, as a trie compares bits */
	__u8 padding;
};

/*
 * Value of `conntrack`. The key is a struct tuple with the lower end as source (ct_key). Counters: 0 is the
 * initiator's direction, 1 the reply direction.
 */
struct ct_entry {
	__u64 created, seen; /* CLOCK_MONOTONIC, ns; `seen` to the second */
	__u64 packets[2];
	__u64 bytes[2];	       /* with the link-layer header */
	__u32 revision;	       /* policy revision of the verdict */
	__u32 ingress, egress; /* numbers of the NetworkPolicies that allow it; 0: none */
	__u32 flags;	       /* enum ct_flag */
	/* Identities of initiator and responder at creation; 0 if flows do not report it. */
	__u32 source, destination;
	__u32 slot; /* in `ct_slots`; CT_NO_SLOT while in `ct_new` */
	__u32 padding;
};

#define CT_NO_SLOT 0xffffffffU

/*
 * The rings of slots of a pod: outbound or inbound, and new or assured (CT_ASSURED). Anyone can create new
 * entries, one for each packet. A full ring evicts its own entries only.
 */
enum ct_ring {
	CT_RING_ASSURED = 1 << 0,
	CT_RING_INBOUND = 1 << 1,
	CT_RING_MAX = 4,
};

/* Position of the ring in ct_slot.slot; the index is below. */
#define CT_RING_SHIFT 24

/* Key of `ct_slots`. */
struct ct_slot {
	struct address pod;
	__u32 slot; /* enum ct_ring << CT_RING_SHIFT | index */
};

/* Value of `ct_shares`: slots allocated in each ring so far. The next one is this number modulo the ring size. */
struct ct_share {
	__u32 next[CT_RING_MAX];
};

/* Argument of flush_pod. */
struct flush_pod_args {
	struct address pod;
};

/* Element of `ct_new`: a slot and its entry. */
struct ct_new_entry {
	struct tuple key;      /* as in `conntrack`; protocol 0: empty */
	__u32 lock;	       /* not 0: a CPU replaces, moves or reports the entry */
	__u32 unreplied_until; /* until when `conntrack` may have an unreplied entry of this slot, as ct_new_clock */
	struct ct_entry entry;
};

#define CT_NEW_MAX 1024

enum ct_flag {
	CT_REVERSED = 1 << 0,	  /* the initiator is the key's destination */
	CT_REPLIED = 1 << 1,	  /* a packet of the reply direction was seen */
	CT_FIN = 1 << 2,	  /* TCP: FIN of the initiator */
	CT_REPLY_FIN = 1 << 3,	  /* TCP: FIN of the responder */
	CT_RESET = 1 << 4,	  /* TCP: RST */
	CT_REPORTED_END = 1 << 5, /* its close was reported */
	CT_EGRESS = 1 << 6,	  /* egress policies were evaluated here */
	CT_INGRESS = 1 << 7,	  /* ingress policies were evaluated here */
	CT_REVOKED = 1 << 8,	  /* no longer allowed, and reported */
	CT_MIDSTREAM = 1 << 9,	  /* TCP: its start was not seen; the first sender counts as the initiator */
	CT_REPORTED = 1 << 10,	  /* reported, or lost */
	CT_ASSURED = 1 << 11,	  /* the initiator has sent more after the first reply */
	CT_INBOUND = 1 << 12,	  /* owned by the responder: the initiator is not a local pod */
};

/* The kind of a flow event. */
enum flow_kind {
	FLOW_NEW = 0,	  /* a connection was created */
	FLOW_REPLIED = 1, /* first reply */
	FLOW_CLOSED = 2,  /* closed by TCP, with totals; the agent reports timeouts */
	FLOW_DROPPED = 3, /* a packet was dropped */
	FLOW_REVOKED = 4, /* a connection is no longer allowed, with totals */
	FLOW_KIND_MAX = 5,
};

/* What flows report (--flows). */
enum flow_mode {
	FLOWS_OFF = 0,
	FLOWS_DROPS = 1,  /* drops */
	FLOWS_POLICY = 2, /* drops, and connections of pods that policies select */
	FLOWS_ALL = 3,	  /* drops, and connections of all pods */
};

/*
 * Record of `flows`. The tuple of a connection has the initiator as source. The tuple of a drop is that of the
 * packet, as far as it can be parsed; if policies dropped it, as the pods see it.
 */
struct flow_event {
	__u64 time;    /* CLOCK_MONOTONIC, ns */
	__u64 created; /* as in struct ct_entry; 0 for a drop */
	struct tuple tuple;
	__u64 packets[2], bytes[2]; /* as in struct ct_entry; for a drop, index 0: since the last event */
	__u32 ifindex;		    /* device that the packet came from or goes to */
	__u32 source, destination;  /* identities; 0: unknown */
	__u32 ingress, egress;	    /* as in struct ct_entry */
	__u8 kind;		    /* enum flow_kind */
	__u8 reason;		    /* enum drop_reason */
	__u8 program;		    /* enum program */
	__u8 tcp_flags;		    /* enum transport_flag */
	__u8 first;		    /* not 0: the first event of the entry */
	__u8 padding[7];
};
_Static_assert(sizeof(struct flow_event) == 120, "two cache lines with the header of the ring buffer");

/* Index of `flow_lost`: why an event was lost. */
enum flow_loss {
	FLOW_LOSS_FULL = 0,    /* ring buffer full */
	FLOW_LOSS_LIMITED = 1, /* over --flows-rate */
	FLOW_LOSS_EVICTED = 2, /* counted drops, evicted before they were reported */
	FLOW_LOSS_MAX = 3,
};

/* Bytes of `flows`, a power of two. */
#define FLOWS_SIZE (1 << 20)

/* Value of `flow_drops`: similar drops. */
struct flow_drop {
	__u64 reported;	      /* CLOCK_MONOTONIC, ns, of the last event; 0: none */
	__u64 packets, bytes; /* since the last event */
	__u32 hash;	      /* of tuple, reason and program */
	__u32 ifindex;
	struct tuple tuple;
	__u32 source, destination; /* as in flow_event */
	__u8 reason;		   /* enum drop_reason */
	__u8 program;		   /* enum program */
	__u8 tcp_flags;		   /* of the last reported drop */
	__u8 padding[5];
};

#define FLOW_DROPS_MAX 256
