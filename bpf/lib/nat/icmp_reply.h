/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Replies to packets that cannot be forwarded, made of the packets themselves: rejects of Services without
 * endpoints, and ICMP errors. They leave through the device that the packet came from.
 */
#pragma once

#include "lib/fwd/endpoint.h"
#include "lib/fwd/sender.h"
#include "lib/fwd/tunnel.h"
#include "lib/nat/icmp_error.h"
#include "lib/nat/tcp_reset.h"

/*
 * ICMP errors of each kind in a second. To a local pod as many as the kernel sends in total (icmp_msgs_per_sec);
 * to an external sender a tenth, since its address may be forged.
 */
enum icmp_ratelimit_max {
	ICMP_RATELIMIT_POD = 1000,
	ICMP_RATELIMIT_EXTERNAL = 100,
};

/* Errors go to single hosts only (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)). */
static __always_inline bool icmp_reply_may_go_to(const struct address *a)
{
	return !address_stays_on_link(a) && !(address_is_ipv4(a) && !a->word[3]);
}

/* Whether the sender may get another error of a kind in this second. Without the counter none is sent. */
static __noinline bool icmp_reply_allowed(struct packet *p, enum icmp_error_kind kind)
{
	struct icmp_ratelimit_key key = {.sender = sender_of(p->skb, p->program, &p->source), .kind = kind};
	__u64 now = bpf_ktime_get_coarse_ns();
	struct icmp_ratelimit_entry *rate = bpf_map_lookup_elem(&icmp_ratelimit, &key);

	if (!rate) {
		struct icmp_ratelimit_entry first = {now, 1};

		return !bpf_map_update_elem(&icmp_ratelimit, &key, &first, BPF_ANY);
	}
	if (now - rate->since >= 1000000000) {
		rate->since = now;
		rate->sent = 0;
	}
	if (rate->sent >= (key.sender.external ? ICMP_RATELIMIT_EXTERNAL : ICMP_RATELIMIT_POD))
		return false;
	__sync_fetch_and_add(&rate->sent, 1);
	return true;
}

/* Sends the reply back: into the pod, onto the wire, or through the tunnel. */
STAGE icmp_reply_send(struct packet *p)
{
	const struct endpoint *sender;
	const struct route *route;

	if (config_macvlan && p->program == PROGRAM_FROM_POD) {
		sender = endpoint_of(&p->source);
		if (sender && sender->parent) /* the host end of a macvlan pod leads nowhere */
			return endpoint_redirect_macvlan(p, sender->parent);
	}
	if (!packet_is_of_tunnel(p)) {
		/* At an uplink for from_macvlan, at the host end of a pod for to_pod. */
		if (config_macvlan || (handled_at_netkit(p) && config_to_pod))
			handled_set(p->skb);
		p->action = bpf_redirect(p->skb->ifindex, 0);
		return REDIRECT;
	}
	if ((p->protocol == bpf_htons(ETH_P_IP) ? packet_parse_ipv4(p) : packet_parse_ipv6(p)) != NEXT)
		return drop(p, DROP_ICMP_RATELIMITED);
	route = route_of(&p->destination);
	if (!route || !route_is_tunnel(route->kind) || !tunnel_encap(p, route))
		return drop(p, DROP_ICMP_RATELIMITED);
	p->action = bpf_redirect(route->ifindex, 0);
	return REDIRECT;
}

/* Offset of the TCP or UDP checksum in the frame; 0 for other protocols. */
static __always_inline __u32 icmp_reply_check_offset(const struct transport *t)
{
	switch (t->tuple.protocol) {
	case PROTOCOL_TCP:
		return t->offset + 16;
	case PROTOCOL_UDP:
		return t->offset + 6;
	}
	return 0;
}

/* Replies with an ICMP error, or drops the packet. `mtu` as in icmp_reply_error_ipv4. */
STAGE icmp_reply_error(struct packet *p, const struct transport *t, __u32 mtu)
{
	__u32 check = icmp_reply_check_offset(t);
	int failed;

	if (t->kind != TRANSPORT_PORTS || !icmp_reply_may_go_to(&p->source) ||
	    !icmp_reply_allowed(p, mtu && mtu != ICMP_REPLY_TTL_EXCEEDED ? ICMP_ERROR_TOO_BIG : ICMP_ERROR_OTHER))
		return drop(p, DROP_ICMP_RATELIMITED);
	if (p->protocol == bpf_htons(ETH_P_IP))
		failed = icmp_reply_error_ipv4(p->skb, t->offset, check, mtu);
	else
		failed = icmp_reply_error_ipv6(p->skb, t->offset, check, mtu);
	return failed ? drop(p, DROP_ICMP_RATELIMITED) : icmp_reply_send(p);
}

/*
 * Rejects a packet to a Service without endpoints: a reset for TCP, else port unreachable. Resets and later
 * fragments get no reply.
 */
STAGE icmp_reply_reject(struct packet *p, const struct transport *t)
{
	bool ipv4 = p->protocol == bpf_htons(ETH_P_IP);
	int failed;

	if (t->tuple.protocol != PROTOCOL_TCP)
		return icmp_reply_error(p, t, 0);
	if (t->kind != TRANSPORT_PORTS || t->flags & TCP_RST || !icmp_reply_may_go_to(&p->source) ||
	    t->offset != ETH_HLEN + (ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return drop(p, DROP_ICMP_RATELIMITED);
	/* Not rate-limited: a reset is no longer than the segment, so it amplifies nothing. */
	failed = ipv4 ? icmp_reply_reset_ipv4(p->skb) : icmp_reply_reset_ipv6(p->skb);
	return failed ? drop(p, DROP_ICMP_RATELIMITED) : icmp_reply_send(p);
}
