/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow events of dropped packets. Similar drops share an event, and events are rate-limited for each CPU. The
 * packet is parsed again, as far as possible.
 */
#pragma once

#include "lib/flow/events.h"

/* Drops are similar if tuple, reason and program are the same. */
static __always_inline __u32 flow_hash(const struct tuple *t, __u32 drop_id)
{
	__u32 hash = flow_mix(drop_id, t->protocol);

	for (int i = 0; i < 4; i++)
		hash = flow_mix(flow_mix(hash, t->source.word[i]), t->destination.word[i]);
	hash = flow_mix(hash, (__u32)t->source_port << 16 | t->destination_port);
	return flow_mix(hash, 0); /* another round, so that the upper bits of the ports reach the index */
}

/* Reason and program in one argument. */
static __always_inline __u32 flow_drop_id(enum program program, enum drop_reason reason)
{
	return reason | program << 8;
}

/* The sender of a dropped packet: a pod by its device, or an external bucket. */
static __always_inline struct sender flow_sender(const struct tuple *t, __u32 drop_id, __u32 ifindex)
{
	struct sender who = {};

	if (drop_id >> 8 == PROGRAM_FROM_POD)
		who.device = ifindex;
	else
		who.external = ((drop_id >> 8) + 1) * SENDERS_EXTERNAL + sender_external(&t->source);
	return who;
}

/*
 * Whether this CPU may report another drop: within the sender's own share, or within the shared rest of
 * --flows-rate, which leaves the last quarter of the buffer alone. If not, *why is the reason.
 */
static __always_inline bool flow_allowed(const struct sender *who, __u64 now, enum flow_loss *why)
{
	__u32 zero = 0;
	__u64 *used;

	*why = FLOW_LOSS_LIMITED;
	if (flow_share_allows(who, now))
		return true;
	used = bpf_map_lookup_elem(&flow_ratelimit, &zero);
	if (!used || config_flows_rate <= flow_share_rate() ||
	    !flow_ratelimit_use(used, now, config_flows_rate - flow_share_rate()))
		return false;
	*why = FLOW_LOSS_FULL;
	return !flow_is_crowded();
}

/* Fills an event for similar drops, except time and kind. */
static __always_inline void flow_fill_drops(struct flow_event *e, const struct flow_drop *d, __u64 packets, __u64 bytes)
{
	e->created = 0;
	e->tuple = d->tuple;
	e->packets[0] = packets;
	e->bytes[0] = bytes;
	e->packets[1] = e->bytes[1] = 0;
	e->ifindex = d->ifindex;
	e->source = d->source;
	e->destination = d->destination;
	e->ingress = e->egress = 0;
	e->reason = d->reason;
	e->program = d->program;
	e->tcp_flags = d->tcp_flags;
	e->first = 0;
	__builtin_memset(e->padding, 0, sizeof(e->padding));
}

/*
 * Reports a drop. A similar drop within a second is only counted, and reported with the next event or by
 * flush_drops. `bytes` include the link-layer header. The result has no meaning.
 */
static __noinline int flow_dropped(const struct tuple *t, __u32 drop_id, __u32 tcp_flags, __u32 bytes, __u32 ifindex)
{
	__u32 hash = flow_hash(t, drop_id), index = hash >> 24;
	struct flow_drop *d = bpf_map_lookup_elem(&flow_drops, &index);
	__u64 now = bpf_ktime_get_ns(), packets, all;
	struct flow_event *e;
	struct sender who;
	enum flow_loss why;
	bool known;

	_Static_assert(FLOW_DROPS_MAX == 1 << 8, "the index has 8 bits");
	if (config_flows == FLOWS_OFF || !d)
		return 0;
	known = d->reported && d->hash == hash;
	if (known && now - d->reported < FLOW_INTERVAL) {
		__sync_fetch_and_add(&d->packets, 1); /* flush_drops may take them on another CPU */
		__sync_fetch_and_add(&d->bytes, bytes);
		return 0;
	}
	who = flow_sender(t, drop_id, ifindex);
	if (!flow_allowed(&who, now, &why)) {
		flow_count_lost(FLOW_DROPPED, why, 1);
		return 0;
	}
	e = flow_reserve(FLOW_DROPPED);
	if (!e)
		return 0;
	__sync_lock_test_and_set(&d->reported, now); /* first, so that flush_drops notices */
	packets = __sync_lock_test_and_set(&d->packets, 0);
	all = __sync_lock_test_and_set(&d->bytes, 0);
	if (!known) {
		if (packets)
			flow_count_lost(FLOW_DROPPED, FLOW_LOSS_EVICTED, packets);
		packets = all = 0;
		d->hash = hash;
		d->tuple = *t;
		d->reason = drop_id & 0xff;
		d->program = drop_id >> 8;
	}
	d->ifindex = ifindex;
	d->source = policy_identity(&t->source, IDENTITY_BY_ALL);
	d->destination = policy_identity(&t->destination, IDENTITY_BY_ALL);
	d->tcp_flags = tcp_flags;
	flow_fill_drops(e, d, packets + 1, all + bytes);
	flow_submit(e);
	return 0;
}

/* Reads ports and TCP flags. */
static __always_inline void flow_read_ports(struct __sk_buff *skb, struct transport *t)
{
	__u8 protocol = t->tuple.protocol;
	struct transport_header h = {};

	if (protocol == PROTOCOL_TCP) {
		if (t->offset + TRANSPORT_TCP_LENGTH > t->end ||
		    bpf_skb_load_bytes(skb, t->offset, &h, TRANSPORT_TCP_LENGTH))
			return;
	} else if (!transport_needs(protocol) || t->offset + TRANSPORT_OTHER_LENGTH > t->end ||
		   bpf_skb_load_bytes(skb, t->offset, &h, TRANSPORT_OTHER_LENGTH)) {
		return;
	}
	if (protocol == PROTOCOL_SCTP) { /* RFC 9260, 3.1: as in TCP */
		t->tuple.source_port = h.source;
		t->tuple.destination_port = h.destination;
		return;
	}
	transport_set(t, &h);
	if (t->kind == TRANSPORT_ERROR) /* bytes at that offset are no ports */
		t->tuple.source_port = t->tuple.destination_port = 0;
}

/*
 * Parses as much as there is; the rest is 0. The pointers of struct packet may be invalid by now. Translated
 * packets have their new addresses.
 */
static __always_inline void flow_read(struct __sk_buff *skb, struct transport *t)
{
	__builtin_memset(t, 0, sizeof(*t));
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 4)
			return;
		address_from_ipv4(&t->tuple.source, ip.saddr);
		address_from_ipv4(&t->tuple.destination, ip.daddr);
		t->tuple.protocol = ip.protocol;
		if (ip.ihl < 5)
			return;
		t->offset = ETH_HLEN + ip.ihl * 4;
		t->end = packet_end(skb, 0, ip.tot_len);
		transport_set_ipv4_fragment(t, ip.frag_off, ip.id);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.version != 6)
			return;
		address_from_ipv6(&t->tuple.source, &ip.saddr);
		address_from_ipv6(&t->tuple.destination, &ip.daddr);
		t->tuple.protocol = ip.nexthdr;
		t->offset = ETH_HLEN + sizeof(ip);
		t->end = packet_end(skb, sizeof(ip), ip.payload_len);
		if (!transport_has_ports(t->tuple.protocol) && !transport_skip_extensions(skb, t))
			return;
	}
	if (t->offset && t->kind == TRANSPORT_OTHER)
		flow_read_ports(skb, t);
}

/* Reports a drop of a tc program. The result has no meaning. */
GLOBAL_FN int flow_packet_dropped(struct __sk_buff *skb, __u32 drop_id)
{
	struct transport t;

	flow_read(skb, &t);
	return flow_dropped(&t.tuple, drop_id, t.flags, skb->len, skb->ifindex);
}
