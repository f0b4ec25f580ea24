/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ABI with Go: every struct and enum that both sides use; with types_policy.h. bpf2go generates the Go types.
 * Multi-byte fields are in host byte order unless their type says otherwise. Padding is explicit and must be zero:
 * map keys are compared as bytes. The compiler rejects padding of its own.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <linux/if_ether.h>

typedef _Bool bool;
#define true 1
#define false 0

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* An address in network order. IPv4 is stored IPv4-mapped, ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
struct address {
	__be32 word[4];
};

/* Value of `endpoints`: a local pod. */
struct endpoint {
	__u32 ifindex;		 /* host end of the pod's device */
	__u8 pod_mac[ETH_ALEN];	 /* MAC of the pod's end */
	__u8 host_mac[ETH_ALEN]; /* MAC of the host's end */
	__u8 through_stack;	 /* not 0: the kernel stack forwards the pod's traffic */
	__u8 underlay;		 /* not 0: the external network knows the pod's address; no masquerading */
	__u16 netns;		 /* netnsid of the pod in the host's namespace (RTM_GETNSID), plus 1; 0: unknown */
	__u32 parent;		 /* device that the pod's macvlan device is on; 0: the pod has another kind of device */
	__u8 limited_egress;	 /* not 0: `limits` has a limit of what the pod sends */
	__u8 limited_ingress;	 /* not 0: a qdisc of the host end limits what the pod receives */
	__u16 padding;
};

/*
 * Value of `limits`: how fast a pod may send. Two clocks tell when the pod has sent what it was allowed to: of all packets,
 * for those that leave by an uplink that departs them in time, and of all others, so that those need not wait for them.
 */
struct limit {
	struct bpf_spin_lock lock;
	__u32 departs; /* not 0: the uplinks have the qdisc fq, which holds packets until their departure time */
	__u64 rate;    /* bytes/s with link-layer headers, of each packet on the wire */
	__u64 burst;   /* how much the pod may catch up of time without packets, ns */
	__u64 all;     /* CLOCK_MONOTONIC, ns */
	__u64 other;   /* likewise */
};

/* Key of `macvlan_pods`. */
struct macvlan_key {
	__u32 parent; /* ifindex */
	__u8 mac[ETH_ALEN];
	__u16 padding;
};

/* Value of `macvlan_pods`: a local pod with a macvlan device. */
struct macvlan_pod {
	__u64 netns;		   /* cookie of the pod's network namespace */
	struct address ipv4, ipv6; /* zero without one of the family */
	__u32 ifindex;		   /* host end, as in `endpoints` */
	__u8 host_mac[ETH_ALEN];   /* MAC of the host's end */
	__u16 padding[3];
};

/* Key of `routes`. prefix_len counts bits of an IPv6 prefix: 96 more for IPv4. */
struct route_key {
	__u32 prefix_len;
	struct address address; /* host bits are zero */
};

#define PREFIX_LENGTHS_MAX 16

/* Value of `route_lengths`: the prefix lengths in `routes`, in the order of lookup. */
struct prefix_lengths {
	__u32 count;
	__u32 prefix_len[PREFIX_LENGTHS_MAX];
	struct address mask[PREFIX_LENGTHS_MAX];
};

/* The kind of a cluster address. Addresses without a route are external. */
enum route_kind {
	ROUTE_UNKNOWN = 0,
	ROUTE_LOCAL = 1,  /* local pods: look up `endpoints` */
	ROUTE_REMOTE = 2, /* pods and addresses of another node on this link */
	ROUTE_CLUSTER =
		3, /* left to the kernel stack: node addresses, exempt addresses; cached: pods with through_stack */
	ROUTE_TUNNEL = 4,    /* pods and addresses of another node, by VXLAN */
	ROUTE_ENCRYPTED = 5, /* likewise, by WireGuard or IPsec; without a device nothing leaves the node */
};

/*
 * Value of `routes`. ROUTE_REMOTE: how a packet leaves the node. ROUTE_TUNNEL: likewise for the inner packet, with
 * the VXLAN device as uplink and the remote tunnel end as next_hop. ROUTE_ENCRYPTED: with the device of WireGuard or
 * IPsec, which finds the peer by the inner destination; next_hop tells nodes apart, and is the peer's end of IPsec.
 */
struct route {
	__u8 kind;		     /* enum route_kind */
	__u8 resolved;		     /* next_hop_mac is valid; ROUTE_LOCAL: the pod has a macvlan device */
	__u16 mtu;		     /* without the link-layer header; ROUTE_LOCAL: limited_ingress */
	__u32 ifindex;		     /* of the uplink */
	__u8 next_hop_mac[ETH_ALEN]; /* valid while `resolved` is set and `neigh_lease` holds */
	__u8 uplink_mac[ETH_ALEN];
	/* For bpf_redirect_neigh. ROUTE_LOCAL: word[0] is the parent of the pod's macvlan device. */
	struct address next_hop;
};

/* Why packets between two addresses are evaluated. */
enum enforce_flag {
	ENFORCE_EGRESS = 1 << 0,    /* policies select the sender, a local pod */
	ENFORCE_INGRESS = 1 << 1,   /* policies select the receiver, a local pod */
	ENFORCE_OBSERVED = 1 << 2,  /* flows observe the packets */
	ENFORCE_UNCOUNTED = 1 << 3, /* the packets are counted at the sender's device */
};

/* The pod that a flow cache entry of from_macvlan is for: as in `macvlan_pods`, with the MAC that is its key. */
struct macvlan_sender {
	__u64 netns;
	__u32 host_end;
	__u8 mac[ETH_ALEN], host_mac[ETH_ALEN];
};

/*
 * The cached verdict of a flow cache entry: the last allowed connection. Counters are added to its conntrack entry
 * when the verdict ends, at least about once a second.
 */
struct verdict_cache {
	__be16 source_port, destination_port; /* as in packets with the addresses of the flow cache entry */
	__be16 sender_port;		      /* of the connection, before SNAT */
	__u8 protocol;			      /* 0: no cached verdict */
	__u8 uncounted;			      /* not 0: ENFORCE_UNCOUNTED */
	__u32 revision;			      /* policy revision of the verdict */
	__u32 until;			      /* in units of verdict_cache_clock */
	__u64 packets, bytes;  /* not yet added to the conntrack entry; bytes with the link-layer header */
	struct address sender; /* likewise, before SNAT */
};

/* Value of `flow_cache`: results for packets of one device between two addresses, valid for one generation. */
struct flow_cache_entry {
	struct address source, destination;
	__u32 scope; /* device, with enum flow_cache_scope */
	__u32 generation;
	__u32 expires; /* 0: never; else 2^30 ns of CLOCK_MONOTONIC. from_tunnel: hash of the outer address. to_pod: ingress device */
	__u32 nat_checks;   /* enum nat_check; 0: never translated */
	struct route route; /* ROUTE_LOCAL: the pod's device and its MACs */
	__u16 enforce;	    /* enum enforce_flag; 0: not evaluated */
	__u16 limited;	    /* from_pod: limited_egress of the sender */
	struct verdict_cache verdict;
	struct macvlan_sender sender; /* from_macvlan */
};

/* Indices of `generation`. */
enum generation_index {
	GENERATION_TABLES = 0, /* by the agent: a change of `endpoints`, `routes`, `macvlan_pods` or `policy_pods` */
	GENERATION_PODS = 1,   /* by the datapath: an addition to `nat_pods` */
	GENERATION_POLICY = 2, /* by the agent: a change that may deny; the policy revision */
	GENERATION_MAX = 3,
};

/*
 * Why a packet was dropped. Also the metric label, and what `beeline drops` prints. Never renumber or reuse a
 * number.
 */
enum drop_reason {
	DROP_NONE = 0,
	DROP_TRUNCATED = 1,		    /* shorter than its headers */
	DROP_MALFORMED = 2,		    /* impossible header fields */
	DROP_NOT_IP = 3,		    /* from a pod: not IPv4, IPv6 or ARP; from a tunnel: not IP */
	DROP_SPOOFED_SOURCE = 4,	    /* from a pod: not its own source address */
	DROP_INVALID_DESTINATION = 5,	    /* from the kernel stack: not an address of this pod */
	DROP_NO_MASQUERADE_ADDRESS = 6,	    /* to an external address, still with a pod's source */
	DROP_UNKNOWN_TUNNEL_PEER = 7,	    /* decapsulated, but not from a node of the cluster */
	DROP_NAT_PORTS_EXHAUSTED = 8,	    /* every SNAT port towards this destination is taken */
	DROP_NAT_TABLE_FULL = 9,	    /* `nat` or `nat_pending` is full */
	DROP_NO_LOCAL_BACKEND = 10,	    /* traffic policy Local without a local backend */
	DROP_SOURCE_NOT_ALLOWED = 11,	    /* not in loadBalancerSourceRanges */
	DROP_FRAGMENT_WITHOUT_FIRST = 12,   /* a later fragment, whose first one was not seen */
	DROP_NAT_UNSUPPORTED_PROTOCOL = 13, /* to an external address: a protocol that cannot be masqueraded */
	DROP_NO_ROUTE = 14,		    /* translated, and the node has no route */
	DROP_ICMP_RATELIMITED = 15,	    /* an ICMP error is due that must not be sent, or is over the limit */
	DROP_INGRESS_POLICY = 16,	    /* denied by the policies of the receiving pod */
	DROP_EGRESS_POLICY = 17,	    /* denied by the policies of the sending pod */
	DROP_INTERNAL_ERROR = 18,	    /* scratch map lookup failed */
	DROP_INGRESS_POLICY_PENDING = 19,   /* policies of the receiving pod are unknown or could not be applied */
	DROP_EGRESS_POLICY_PENDING = 20,    /* likewise of the sending pod */
	DROP_BAD_FRAGMENT =
		21, /* a first fragment without the whole transport header, a later one that overlaps it, or a second first one */
	DROP_UNREADABLE =
		22, /* too many IPv6 extension headers, and policies select the pod or the node would read them */
	DROP_INVALID_SOURCE = 23,     /* from an uplink or a tunnel: a source that cannot come from there */
	DROP_TUNNEL_PORT = 24,	      /* to the tunnel port, not between InternalIPs of nodes */
	DROP_FORGED_ERROR = 25,	      /* an ICMP error from a sender that cannot have received the quoted packet */
	DROP_UNENCRYPTED = 26,	      /* plaintext of a pod or node whose packets have to be encrypted */
	DROP_ENCRYPTION_PENDING = 27, /* the packet has to be encrypted, and cannot be yet */
	DROP_BANDWIDTH = 28,	      /* the pod has sent more than its bandwidth limit allows */
	DROP_MAX = 29,
};

/* Programs that drop packets. With the reason, the index of `drops`. */
enum program {
	PROGRAM_FROM_POD = 0,
	PROGRAM_TO_POD = 1,
	PROGRAM_FROM_WIRE = 2,
	PROGRAM_TO_WIRE = 3,
	PROGRAM_FROM_TUNNEL = 4,
	PROGRAM_TO_TUNNEL = 5,
	PROGRAM_WIRE_XDP = 6,
	PROGRAM_FROM_MACVLAN = 7,
	PROGRAM_TO_MACVLAN = 8,
	PROGRAM_FROM_WIREGUARD = 9,
	PROGRAM_FROM_IPSEC = 10,
	PROGRAM_MAX = 11,
};

/* Value of `drops`, one for each CPU. */
struct drop_count {
	__u64 packets;
	__u64 bytes; /* with the link-layer header */
};

/* Key of `services`: a frontend. */
struct frontend {
	struct address address;
	__be16 port;
	__u8 protocol; /* IP protocol number */
	__u8 padding;
};

/* What happens to connections to a Service without backends on their side. */
enum no_backend {
	NO_BACKEND_REJECT = 0, /* no endpoints: TCP RST or ICMP port unreachable */
	NO_BACKEND_DROP = 1,   /* traffic policy Local without a local endpoint */
	NO_BACKEND_PASS = 2,   /* not a frontend on this side: kernel stack */
};

/* The backends of one side. */
struct backend_set {
	__u32 id;	   /* key of `backends` */
	__u32 maglev;	   /* table in `maglev`; sets of the same addresses share one */
	__u32 maglev_size; /* entries of the table, a prime; 0: no table, any backend will do */
	__u16 count;	   /* of backends; their indices are below it */
	__u8 maglev_width; /* bytes of a table entry, 1 or 2, little endian */
	__u8 no_backend;   /* enum no_backend, if count is 0 */
};

enum service_flag {
	SERVICE_AFFINITY = 1 << 0, /* sessionAffinity: ClientIP */
	SERVICE_SOURCES = 1 << 1,  /* restricted to `service_sources` */
	SERVICE_DSR = 1 << 2,	   /* external connections: backends on other nodes reply directly */
};

/* Value of `services`. Replaced as a whole, so a connection never sees a mix of old and new backends. */
struct service {
	__u32 id;	/* for affinity, sources and counters; the same for all frontends of a Service port */
	__u32 affinity; /* timeout in seconds */
	__u16 flags;	/* enum service_flag */
	__u16 padding;
	struct backend_set internal; /* for pods and the node */
	struct backend_set external; /* for packets from the wire */
};

/* Key of `backends`. A set is written before a Service refers to it and deleted after. */
struct backend_key {
	__u32 set;
	__u32 index;
};

struct backend {
	struct address address;
	__be16 port;
	__u16 padding;
};

/* Key of `maglev`: the block starts with entry block * MAGLEV_BLOCK / width of the table. */
struct maglev_key {
	__u32 table;
	__u32 block;
};

#define MAGLEV_BLOCK 192

/* Value of `maglev`: indices of backends. */
struct maglev_block {
	__u8 entries[MAGLEV_BLOCK];
};

/* The kind of a client, for session affinity. */
enum client_kind {
	CLIENT_ADDRESS = 0,
	CLIENT_NETNS = 1, /* a network namespace cookie, in the first two words */
};

/* Key of `affinities`. */
struct client {
	struct address address;
	__u32 service;
	__u32 kind; /* enum client_kind */
};

/* Value of `affinities`: the backend of the client's last connection. */
struct affinity {
	__u64 used; /* CLOCK_MONOTONIC, ns */
	__u32 set;  /* `index` is valid in this set; in another the backend is searched */
	__u32 index;
	struct backend backend;
	__u32 padding;
};

/* Key of `service_sources`. prefix_len includes the 32 bits of the service. */
struct source_key {
	__u32 prefix_len;
	__u32 service; /* in network order, as a trie compares bits */
	struct address address;
};

/* Value of `service_counts`, one for each CPU. */
struct service_count {
	__u64 connections; /* with a backend */
	__u64 rejected;	   /* without a backend, or source not allowed */
};

/*
 * Key of `nat` and `nat_pending`: the tuple before NAT. ICMP echo: the identifier is the requester's port, the
 * responder's port is 0.
 */
struct tuple {
	struct address source, destination;
	__be16 source_port, destination_port;
	__u8 protocol;
	__u8 padding[3];
};

enum nat_flag {
	NAT_INITIATOR = 1 << 0, /* the initiator's direction */
	NAT_FIN = 1 << 1,	/* this direction has sent FIN (TCP) or SHUTDOWN (SCTP) */
	NAT_RESET = 1 << 2,	/* the last packet of this direction was RST (TCP) or ABORT (SCTP) */
	NAT_DSR = 1 << 3,	/* forwarded unchanged by DSR; has no reply direction */
	NAT_UNCHANGED = 1 << 4, /* not translated: exempts its replies from masquerading */
	NAT_TIME_WAIT = 1 << 5, /* TCP, both directions: SNAT port, and the responder sent FIN first */
	NAT_STREAM = 1 << 6,	/* not TCP: a packet in this direction NAT_STREAM_AGE after creation */
	NAT_WIRE = 1 << 7,	/* both directions arrive at uplinks: XDP may forward them */
};

/*
 * Value of `nat` and `nat_pending`: the tuple after NAT. The other direction has an entry with this value reversed
 * as its key.
 */
struct nat_entry {
	struct address source, destination;
	__be16 source_port, destination_port;
	__u32 service; /* id; 0: masquerading */
	__u64 seen;    /* CLOCK_MONOTONIC, ns: the last packet, to the second; 0 or 1: unreplied SYNs to this end */
	__u8 flags;    /* enum nat_flag */
	__u8 packets;  /* of a pending entry, up to 255 */
	__u16 created; /* CLOCK_MONOTONIC in units of 2^28 ns */
	__u32 owner;   /* see lib/nat/nat_slots.h */
};

/* Element of `nat_slots` and `pending_slots`: a connection in `nat` or `nat_pending`. */
struct nat_slot {
	struct tuple key; /* initiator's tuple; protocol 0: free */
	__u32 owner;
	__u32 lock; /* not 0: a CPU is using it */
};

/*
 * Elements of `nat_owners`: NAT_OWNERS for pods, as many for external clients, and one for all external clients. A
 * power of two.
 */
#define NAT_OWNERS 4096
#define NAT_OWNERS_EXTERNAL (2 * NAT_OWNERS)

/* Element of `nat_owners`: slots in use. */
struct nat_owner {
	__u32 established; /* of `nat_slots` */
	__u32 pending;	   /* of `pending_slots` */
};

/* Timeouts in seconds without a packet. TCP includes SCTP. */
enum timeout {
	TIMEOUT_UNREPLIED = 60,	    /* conntrack: no reply yet */
	TIMEOUT_TCP = 21600,	    /* at least 2 h 4 min (RFC 5382, REQ-5) */
	TIMEOUT_TCP_CLOSED = 10,    /* FIN or RST in both directions */
	TIMEOUT_TCP_TIME_WAIT = 60, /* TIME-WAIT of Linux */
	TIMEOUT_TCP_CLOSING = 240,  /* FIN or RST in one direction: 2 MSL (RFC 9293, 3.4.2) */
	TIMEOUT_UDP = 120,	    /* conntrack and sockets: at least 2 min (RFC 4787, REQ-5) */
	TIMEOUT_ICMP = 60,	    /* conntrack: at least 60 s (RFC 5508, REQ-2) */
	TIMEOUT_FRAGMENTS = 60,	    /* reassembly timeout (RFC 8200, 4.5) */
	/* NAT, as in Linux (net/netfilter/nf_conntrack_proto_*.c): */
	TIMEOUT_NAT_SYN_SENT = 120,   /* TCP: SYN without reply */
	TIMEOUT_NAT_SYN_RECV = 60,    /* TCP: reply, no ACK yet */
	TIMEOUT_NAT_UDP = 30,	      /* UDP, not a stream */
	TIMEOUT_NAT_UDP_STREAM = 120, /* UDP, NAT_STREAM in both directions: at least 2 min (RFC 4787, REQ-5) */
	TIMEOUT_NAT_ICMP = 30,	      /* ICMP echo; RFC 5508, REQ-2 asks for 60 s */
};

/* Value of `uplinks`: a device to external networks. Addresses are zero without one of the family. */
struct uplink {
	struct address ipv4, ipv6; /* masquerading addresses */
	__u8 mac[ETH_ALEN];
	__u16 mtu;
};

/* The sender of a packet, for limits per sender: see lib/fwd/sender.h. */
struct sender {
	__u32 device;	/* ingress device; 0: any */
	__u32 external; /* bucket of an external source; 0: the device's pod, or the node itself */
};

/* Key of `fragments`: a slot of a sender, by addresses and identification. */
struct fragment_key {
	struct sender sender;
	__u32 slot;
};

/* Value of `fragments`: a fragmented packet, and the ports of its first fragment. */
struct fragment {
	__u64 seen; /* CLOCK_MONOTONIC, ns, of the first fragment */
	struct address source, destination;
	__u32 id;
	__u32 protocol;
	__be16 source_port, destination_port;
	__u32 complete; /* not 0: the last fragment has come */
};

/* Kinds of ICMP errors with separate limits. */
enum icmp_error_kind {
	ICMP_ERROR_OTHER = 0,	/* port unreachable, time exceeded */
	ICMP_ERROR_TOO_BIG = 1, /* path MTU (RFC 1191, RFC 8201): connections stall without it */
};

/* Key of `icmp_ratelimit`. */
struct icmp_ratelimit_key {
	struct sender sender;
	__u32 kind; /* enum icmp_error_kind */
};

/* Value of `icmp_ratelimit`: errors in the current second. */
struct icmp_ratelimit_entry {
	__u64 since; /* CLOCK_MONOTONIC, ns */
	__u64 sent;
};

/*
 * Value of `sock_storage`: the translation of a socket. Set by connect, or by the last sendmsg of an unconnected
 * socket to a Service. TCP sockets have one only without a slot in `sock_tcp`.
 */
struct sock_entry {
	struct address service, backend;
	__be16 service_port, backend_port;
	__u32 set;  /* of the backend at its last lookup */
	__u64 used; /* CLOCK_MONOTONIC, ns: last sendmsg of an unconnected socket */
};

/* Earlier Services of an unconnected socket, a power of two. 16 entries take 1 KiB of kernel memory. */
#define SOCK_UDP_ENTRIES 16

/*
 * Value of `sock_udp`: the earlier Services of a socket. since[i] % SOCK_UDP_ENTRIES == i, so the oldest or latest
 * value gives its index; else the verifier would follow every index.
 */
struct sock_udp_entries {
	__u64 now; /* largest `since`, in steps of SOCK_UDP_ENTRIES */
	/* Order of use. Below 2 * SOCK_UDP_ENTRIES: unused, replaced first and never matched by replies. */
	__u64 since[SOCK_UDP_ENTRIES];
	struct sock_entry entry[SOCK_UDP_ENTRIES];
};

/* Elements of `sock_tcp`, 1.5 MiB in total. A power of two. */
#define SOCK_TCP_MAX 32768

/* Element of `sock_tcp`: the translation of a TCP socket. The lowest bits of the socket cookie are the index. */
struct sock_tcp_entry {
	__u64 cookie; /* 0: free */
	struct address service, backend;
	__be16 service_port, backend_port;
	__u32 padding;
};

#include "types_policy.h"

#pragma clang diagnostic pop

/* BTF has only types that data refers to. This refers to the rest. */
const volatile struct abi {
	enum route_kind route_kind;
	enum drop_reason drop_reason;
	enum program program;
	enum no_backend no_backend;
	enum service_flag service_flag;
	enum client_kind client_kind;
	enum nat_flag nat_flag;
	enum timeout timeout;
	enum generation_index generation_index;
	enum enforce_flag enforce_flag;
	enum identity identity;
	enum ct_flag ct_flag;
	enum ct_ring ct_ring;
	enum icmp_error_kind icmp_error_kind;
	struct flush_pod_args flush_pod_args;
	enum flow_kind flow_kind;
	enum flow_mode flow_mode;
	enum flow_loss flow_loss;
	struct flow_event flow_event;
} abi __attribute__((used)) = {};
