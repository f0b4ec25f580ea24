/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bandwidth limits of what pods send. What leaves the node gets a departure time (EDT), and the uplink's qdisc fq holds
 * it until then. Nothing holds other packets: they are dropped if the pod has sent too much in the time before. The agent
 * has the pod's end delay them to the same rate; one percent more is allowed here, so that both agree.
 */
#pragma once

#include "lib/flow/finish.h"
#include "lib/net/packet.h"

/* Where from_pod keeps limited_egress of the sender, in the control block. Not valid for packets without flow cache entry. */
#define LIMIT_CB 2

#define LIMIT_SECOND 1000000000ULL

/*
 * How far ahead a packet may depart, ns. Until then it takes a place in the uplink's queue, which all share. The queue of
 * the pod's own end has delayed what waits for longer.
 */
#define LIMIT_HORIZON 100000000ULL

/* Bytes of a packet on the wire: the kernel sends the headers of a GSO packet once for each segment. */
static __always_inline __u64 limit_bytes(const struct __sk_buff *skb)
{
	__u32 len = skb->len, size = skb->gso_size, headers;

	if (!size)
		return len;
	/* TCP with timestamps (RFC 7323), which Linux always sends; UDP headers are shorter. */
	headers = ETH_HLEN + (skb->protocol == bpf_htons(ETH_P_IP) ? 20 : 40) + 32;
	return len + (__u64)((len - 1) / size) * headers;
}

/*
 * How long a packet has to wait, in ns, by the clock of its way, which is moved. 0: it may go now; LIMIT_HORIZON or
 * more: it is dropped.
 */
static __always_inline __u64 limit_wait(struct limit *l, __u64 bytes, __u64 now, bool departs)
{
	__u64 delay = bytes * LIMIT_SECOND / (l->rate ?: 1), wait, next;

	bpf_spin_lock(&l->lock);
	next = departs ? l->wire : l->other;
	if (next + l->burst < now)
		next = now - l->burst;
	wait = next > now ? next - now : 0;
	if (!departs && wait)
		wait = LIMIT_HORIZON;
	if (wait < LIMIT_HORIZON) {
		next += delay - delay / 100;
		if (departs)
			l->wire = next;
		else
			l->other = next;
	}
	bpf_spin_unlock(&l->lock);
	return wait;
}

/*
 * Removes a departure time that a pod has put far ahead (SO_TXTIME): packets with such times would fill the queue of an
 * uplink with fq, and those of others would be dropped. Other pacing of the pod stays, such as that of TCP BBR.
 */
static __always_inline void limit_departure(struct __sk_buff *skb)
{
	if (skb->tstamp_type && unlikely(skb->tstamp > bpf_ktime_get_coarse_ns() + LIMIT_HORIZON))
		bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
}

/*
 * Applies the limit of the pod that sends a packet from the device. `leaves`: it is redirected to another device than a
 * local pod's; the kernel stack removes the departure time of what it forwards. Returns 1 if the packet is dropped: it is
 * counted and reported here, since the verifier would walk the rest of from_pod for each way of a packet.
 */
GLOBAL_FN int limit_exceeded(struct __sk_buff *skb, bool leaves)
{
	__u32 device = skb->ifindex;
	struct limit *l = bpf_map_lookup_elem(&limits, &device);
	__u64 now, wait, departure;

	if (!l)
		return 0;
	leaves = leaves && l->departs;
	now = bpf_ktime_get_ns();
	wait = limit_wait(l, limit_bytes(skb), now, leaves);
	if (wait >= LIMIT_HORIZON) {
		struct packet p = {.skb = skb, .program = PROGRAM_FROM_POD, .reason = DROP_BANDWIDTH};

		finish(&p, DROP);
		return 1;
	}
	if (!leaves)
		return 0;
	departure = skb->tstamp_type == BPF_SKB_TSTAMP_DELIVERY_MONO ? skb->tstamp : 0;
	if (departure < now + wait)
		departure = now + wait;
	bpf_skb_set_tstamp(skb, departure, BPF_SKB_TSTAMP_DELIVERY_MONO); /* Linux 5.18 */
	return 0;
}
