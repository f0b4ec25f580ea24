/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The host end of a pod's device. Ingress: from_pod, packets that a pod sends; at a netkit device it runs at the
 * pod's end, for the device of the host end. Egress: to_pod, packets that the kernel stack delivers to the pod, and
 * packets that from_pod redirects from a netkit device.
 */
#pragma once

#include "config.h"
#include "lib/flow/finish.h"
#include "lib/fwd/endpoint.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/limit.h"
#include "lib/fwd/route.h"
#include "lib/fwd/tunnel.h"
#include "lib/nat/kernel_ct.h"
#include "lib/nat/nat_rewrite.h"
#include "lib/net/icmp_forged.h"
#include "lib/policy/conntrack.h"

/*
 * The NAT checks of packets from a pod. Packets to pods and nodes of the cluster are translated only as replies.
 * Others may be for a Service or an external address. With kube-proxy the kernel stack must see both, and to_wire
 * masquerades.
 */
static __always_inline __u32 from_pod_nat(const struct packet *p, const struct endpoint *sender, enum route_kind kind)
{
	bool stack = !config_ebpf_routing || sender->through_stack;
	bool masquerade = config_masquerade && !sender->underlay;
	__u32 checks = stack ? NAT_CHECK_STACK : 0;

	if (!config_services && (!masquerade || config_kube_proxy || stack || kind))
		return 0;
	/* Loopback frontends are for sockets of the node. */
	if (config_kube_proxy || address_stays_on_link(&p->destination) || address_is_loopback(&p->destination))
		return 0;
	if (kind != ROUTE_UNKNOWN && kind != ROUTE_CLUSTER)
		return bpf_map_lookup_elem(&nat_pods, &p->source) ? checks | NAT_CHECK_REPLIES : 0;
	if (masquerade && !stack)
		checks |= NAT_CHECK_MASQUERADE;
	if (!kind && !sender->underlay)
		return checks | NAT_CHECK_NEW | NAT_CHECK_EXTERNAL;
	/*
	 * Most packets to the node, and those that are not masqueraded, are for no Service, and a pod is marked
	 * before it takes part in a translated connection.
	 */
	return checks | NAT_CHECK_NEW | (bpf_map_lookup_elem(&nat_pods, &p->source) ? 0 : NAT_CHECK_SERVICE);
}

/*
 * enum enforce_flag of packets of a pod. Not for packets of a pod to itself, and not for link-local IPv6, which no other
 * host receives: neighbour discovery. From a macvlan device it leaves by the wire.
 */
static __always_inline __u32 from_pod_enforce(const struct packet *p, const struct route *route, __u32 device)
{
	__u32 enforce = config_flows == FLOWS_ALL ? ENFORCE_OBSERVED : 0;

	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->destination) &&
	    !(config_macvlan && p->program == PROGRAM_FROM_MACVLAN))
		return 0;
	if (policy_selects(&p->source))
		enforce |= ENFORCE_EGRESS;
	if (route->kind != ROUTE_LOCAL)
		return enforce;
	if (route->ifindex == device)
		return 0;
	return policy_selects(&p->destination) ? enforce | ENFORCE_INGRESS : enforce;
}

/*
 * The route of packets of a pod: into a local pod, to another node, or the kernel stack, if they are not
 * translated.
 */
static __noinline void from_pod_route(struct flow_cache_entry *fc, const struct packet *p,
				      const struct endpoint *sender)
{
	enum route_kind kind = route_copy(&p->destination, &fc->route);

	fc->nat_checks = from_pod_nat(p, sender, kind);
	fc->route.kind = kind;
	if (!config_ebpf_routing || sender->through_stack)
		fc->route.kind = ROUTE_CLUSTER;
	else if (kind == ROUTE_LOCAL)
		endpoint_route(&fc->route, &p->destination);
	if (!policy_tracks())
		return;
	fc->enforce = from_pod_enforce(p, &fc->route, sender->ifindex);
	if (fc->nat_checks)
		fc->nat_checks |= (fc->enforce & ~ENFORCE_INGRESS) << NAT_CHECK_ENFORCE_SHIFT;
}

/*
 * Drops forged ICMP errors: the host and other pods would accept them. `otherwise` is the verdict on other
 * packets.
 */
STAGE from_pod_check_error(struct packet *p, enum verdict otherwise)
{
	__u8 protocol = p->protocol == bpf_htons(ETH_P_IP) ? p->ip4->protocol : p->ip6->nexthdr;
	int reason;

	if (likely(protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP))
		return otherwise;
	reason = icmp_forged(p->skb);
	return reason > 0 ? drop(p, reason) : otherwise;
}

static __always_inline bool from_pod_redirects(const struct route *route)
{
	return route->kind == ROUTE_LOCAL || route->kind == ROUTE_REMOTE || route_is_tunnel(route->kind);
}

/*
 * Validates the source and finds the route, or takes both from the flow cache. `device` is the host end of the pod
 * that sends.
 */
STAGE from_pod_lookup(struct packet *p, __u32 device, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination, CACHED_INGRESS);
	const struct endpoint *sender;
	enum verdict v;

	if (!fc)
		return PASS; /* internal error */
	*cached = fc;
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, device, now)))
		return NEXT;
	sender = endpoint_of(&p->source);
	v = endpoint_check_source(p, sender, device);
	if (v != NEXT)
		return v == PASS ? from_pod_check_error(p, PASS) : v;
	from_pod_route(fc, p, sender);
	fc->limited = sender->limited_egress;
	flow_cache_store(fc, &p->source, &p->destination, device, now);
	return NEXT;
}

STAGE from_pod_send(struct packet *p, const struct route *route)
{
	enum verdict v;

	if (!from_pod_redirects(route))
		return PASS;
	v = kernel_ct_check(p);
	if (v != NEXT)
		return v;
	switch (route->kind) {
	case ROUTE_LOCAL:
		return endpoint_deliver(p, route);
	case ROUTE_REMOTE:
		return route_to_wire(p, route);
	default:
		return tunnel_send(p, route);
	}
}

SEC("tcx/ingress")
int from_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_FROM_POD};
	enum verdict v = packet_parse(&p);
	struct flow_cache_entry *fc = 0;

	limit_departure(skb);
	skb->cb[LIMIT_CB] = LIMIT_UNKNOWN;
	if (v == NEXT)
		v = endpoint_check_protocol(&p);
	if (v == NEXT)
		v = from_pod_lookup(&p, skb->ifindex, &fc);
	if (v == NEXT) {
		/* Not in *p: the verifier would walk twice as many paths. */
		skb->cb[LIMIT_CB] = fc->limited;
		v = from_pod_check_error(&p, NEXT);
	}
	if (v == NEXT && (config_services || config_masquerade) && unlikely(fc->nat_checks))
		v = nat_translate(&p, HOOK_FROM_POD, fc->nat_checks);
	if (v == NEXT)
		v = policy_check(&p, fc);
	if (v == NEXT)
		v = from_pod_send(&p, &fc->route);
	if (unlikely(skb->cb[LIMIT_CB]) && v != DROP && limit_exceeded(skb, v == REDIRECT && !p.local))
		return TC_DROP;
	return finish(&p, v);
}

/*
 * Translates replies of Services that came through the kernel stack: of backends on the node, and all to pods with
 * through_stack. The kernel stack would not accept a Service's address as source from outside. `fc` may be NULL;
 * it has the enforce flags of the packet.
 */
STAGE to_pod_translate(struct packet *p, const struct flow_cache_entry *fc)
{
	__u32 enforce = fc ? fc->enforce : 0;

	if (!packet_is_ip(p) || !bpf_map_lookup_elem(&nat_pods, &p->destination))
		return NEXT;
	return nat_translate(p, HOOK_TO_POD, NAT_CHECK_REPLIES | enforce << NAT_CHECK_ENFORCE_SHIFT);
}

/*
 * The enforce flags of packets that the kernel stack delivers. Not for link-local IPv6 (neighbour discovery).
 * Packets of a local pod are counted at its device.
 */
static __noinline void to_pod_enforce(struct flow_cache_entry *fc, const struct packet *p)
{
	bool on_link = p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->source);

	fc->enforce = config_flows == FLOWS_ALL ? ENFORCE_OBSERVED : 0;
	if (policy_selects(&p->destination))
		fc->enforce |= ENFORCE_INGRESS;
	if (on_link)
		fc->enforce = 0;
	if (policy_selects(&p->source) || (config_flows == FLOWS_ALL && endpoint_of(&p->source)))
		fc->enforce |= ENFORCE_UNCOUNTED;
}

/* Validates the source and finds the enforce flags, or takes both from the flow cache. */
STAGE to_pod_lookup(struct packet *p, struct flow_cache_entry **cached)
{
	__u32 now = flow_cache_generation(), where = p->skb->ifindex | SCOPE_EGRESS, device = p->skb->ingress_ifindex;
	struct flow_cache_entry *fc;

	if (!policy_tracks() || !packet_is_ip(p))
		return NEXT;
	fc = flow_cache_slot(&p->source, &p->destination, CACHED_EGRESS);
	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR);
	if (unlikely(!flow_cache_hit(fc, &p->source, &p->destination, where, now) || fc->expires != device)) {
		if (!source_valid_from_device(&p->source, &p->destination, device))
			return drop(p, DROP_INVALID_SOURCE);
		flow_cache_store(fc, &p->source, &p->destination, where, now);
		fc->expires = device;
		to_pod_enforce(fc, p);
	}
	*cached = fc;
	return NEXT;
}

/* Applies policies to packets that to_pod_translate has not handled. */
STAGE to_pod_policy(struct packet *p, struct flow_cache_entry *fc)
{
	return fc ? policy_check(p, fc) : NEXT;
}

/* Delivers what the kernel stack sends to a pod with a macvlan device: its host end leads nowhere. */
static __noinline enum verdict to_pod_send_macvlan(struct packet *p)
{
	const struct endpoint *e;
	struct route route;

	p->ip4 = 0;
	if (packet_parse(p) != NEXT || !packet_is_ip(p))
		return NEXT;
	e = endpoint_of(&p->destination);
	if (!e || !e->parent)
		return NEXT;
	endpoint_set_route(&route, e);
	packet_set_macs(p->eth, &route);
	return endpoint_redirect_macvlan(p, route.next_hop.word[0]);
}

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_POD};
	struct flow_cache_entry *fc = 0;
	__u32 parent = 0;
	enum verdict v;

	if (handled_take(skb))
		return TC_NEXT;
	v = packet_parse(&p);
	if (v == NEXT)
		v = endpoint_check_destination(&p, &parent);
	if (v == NEXT)
		v = to_pod_lookup(&p, &fc);
	if (v == NEXT && config_services)
		v = to_pod_translate(&p, fc);
	if (v == NEXT)
		v = to_pod_policy(&p, fc);
	if (config_macvlan && parent && (v == NEXT || v == PASS))
		v = to_pod_send_macvlan(&p);
	return finish(&p, v);
}
