/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bandwidth limits of what pods send. What leaves the node gets a departure time (EDT), and the uplink's qdisc fq holds
 * it until then. Nothing holds other packets: they are dropped if the pod has sent too much in the time before. The agent
 * has the pod's end delay them to the same rate; one percent more is allowed here, so that both agree.
 */
#pragma once

#include "lib/flow/finish.h"
#include "lib/net/extension.h"
#include "lib/net/packet.h"

/*
 * Where from_pod keeps whether to look for a limit, in the control block: limited_egress of the sender, LIMIT_UNKNOWN for
 * packets without flow cache entry.
 */
#define LIMIT_CB 2
#define LIMIT_UNKNOWN 1

#define LIMIT_SECOND 1000000000ULL

/*
 * How far ahead a packet may depart, ns. Until then it takes a place in the uplink's queue, which all share and which has
 * 40,000 (internal/device/qdisc): pods that send as many small packets as they can must not fill it. The queue of the
 * pod's own end has delayed what waits for longer.
 */
#define LIMIT_HORIZON 20000000ULL

/* More than the headers of any segment: IPv6 with extension headers that transport_skip_extensions does not read. */
#define LIMIT_HEADERS_MAX 9216

/*
 * Bytes of the headers of a TCP or UDP packet. The pod chooses them: with IPv6 extension headers they may be most of each
 * segment of a GSO packet. In a stack frame of its own, which Linux 6.1 has no place for in limit_exceeded.
 */
GLOBAL_FN __u32 limit_headers(struct __sk_buff *skb)
{
	struct transport t = {.end = skb->len};
	__u8 byte = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		bpf_skb_load_bytes(skb, ETH_HLEN, &byte, 1);
		t.offset = ETH_HLEN + (byte & 0xf) * 4;
		bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, protocol), &t.tuple.protocol, 1);
	} else {
		t.offset = ETH_HLEN + sizeof(struct ipv6hdr);
		bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &t.tuple.protocol, 1);
		if (unlikely(transport_is_extension(t.tuple.protocol)) && !transport_skip_extensions(skb, &t))
			return LIMIT_HEADERS_MAX;
	}
	if (t.tuple.protocol != PROTOCOL_TCP)
		return t.offset + sizeof(struct udp_header);
	bpf_skb_load_bytes(skb, t.offset + offsetof(struct tcp_header, data_offset), &byte, 1);
	return t.offset + (byte >> 4) * 4;
}

/* Bytes of a packet on the wire: the kernel sends the headers of a GSO packet once for each segment. */
static __always_inline __u64 limit_bytes(struct __sk_buff *skb)
{
	__u32 len = skb->len, size = skb->gso_size;

	return size ? len + (__u64)((len - 1) / size) * limit_headers(skb) : len;
}

/* The time of a clock, which lags behind by a burst at most. */
static __always_inline __u64 limit_clock(__u64 clock, __u64 burst, __u64 now)
{
	return clock + burst < now ? now - burst : clock;
}

/*
 * How long a packet has to wait, in ns, by the clock of its way, which is moved. 0: it may go now; LIMIT_HORIZON or
 * more: it is dropped.
 */
static __always_inline __u64 limit_wait(struct limit *l, __u64 bytes, __u64 now, bool departs)
{
	__u64 delay = bytes * LIMIT_SECOND / (l->rate ?: 1), wait, all, other;

	delay -= delay / 100;
	bpf_spin_lock(&l->lock);
	all = limit_clock(l->all, l->burst, now);
	other = limit_clock(l->other, l->burst, now);
	wait = departs ? all : other;
	wait = wait > now ? wait - now : 0;
	if (!departs && wait)
		wait = LIMIT_HORIZON;
	if (wait < LIMIT_HORIZON) {
		l->all = all + delay;
		if (!departs)
			l->other = other + delay;
	}
	bpf_spin_unlock(&l->lock);
	return wait;
}

/* Has a packet depart at the horizon. fq takes departure times of other clocks for far ones: they are removed. */
GLOBAL_FN int limit_cap_departure(struct __sk_buff *skb)
{
	if (skb->tstamp_type == BPF_SKB_TSTAMP_DELIVERY_MONO)
		bpf_skb_set_tstamp(skb, bpf_ktime_get_coarse_ns() + LIMIT_HORIZON, BPF_SKB_TSTAMP_DELIVERY_MONO);
	else
		bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
	return 0;
}

/*
 * Brings the departure time closer that a pod has put far ahead (SO_TXTIME): packets with such times would fill the queue
 * of an uplink with fq, and those of others would be dropped. Packets keep their order, and other pacing of the pod
 * stays, such as that of TCP BBR.
 */
static __always_inline void limit_departure(struct __sk_buff *skb)
{
	if (skb->tstamp_type && unlikely(skb->tstamp > bpf_ktime_get_coarse_ns() + LIMIT_HORIZON))
		limit_cap_departure(skb);
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
