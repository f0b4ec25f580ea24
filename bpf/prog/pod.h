/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ingress of the host's end of a pod's device: a packet leaves a pod. */
#pragma once

#include "config.h"
#include "lib/nat/kernel_ct.h"
#include "lib/fwd/flow_cache.h"
#include "lib/fwd/endpoint.h"
#include "lib/flow/finish.h"
#include "lib/net/icmp_forged.h"
#include "lib/fwd/route.h"
#include "lib/policy/conntrack.h"
#include "lib/nat/nat_rewrite.h"
#include "lib/fwd/tunnel.h"

/*
 * What translation has to do with packets from a pod. What goes to pods and nodes of the cluster goes as it is, unless it
 * answers; what goes anywhere else may be for a Service, or for the world. Beside kube-proxy the stack must see both, and
 * to_wire masquerades.
 */
static __always_inline __u32 from_pod_nat(const struct packet *p, const struct endpoint *sender, enum route_kind kind)
{
	bool stack = !config_ebpf_routing || sender->through_stack;
	__u32 checks = stack ? NAT_CHECK_STACK : 0;

	if (!config_services && (!config_masquerade || config_kube_proxy || stack || kind))
		return 0;
	/* Services at loopback addresses are for the node's own sockets. */
	if (config_kube_proxy || address_stays_on_link(&p->destination) || address_is_loopback(&p->destination))
		return 0;
	if (kind != ROUTE_UNKNOWN && kind != ROUTE_CLUSTER)
		return bpf_map_lookup_elem(&nat_pods, &p->source) ? checks | NAT_CHECK_REPLIES : 0;
	if (config_masquerade && !stack)
		checks |= NAT_CHECK_MASQUERADE;
	if (!kind)
		return checks | NAT_CHECK_NEW | NAT_CHECK_EXTERNAL;
	/* Most of what is for the node itself is for no Service, and the pod is listed before it takes part in a connection. */
	return checks | NAT_CHECK_NEW | (bpf_map_lookup_elem(&nat_pods, &p->source) ? 0 : NAT_CHECK_SERVICE);
}

/*
 * Whom policies and flows ask about packets between two pods or of one. What stays on the link of IPv6 is how neighbours find
 * each other, and a pod may reach itself.
 */
static __always_inline __u32 from_pod_enforce(const struct packet *p, const struct route *route)
{
	__u32 enforce = config_flows == FLOWS_ALL ? ENFORCE_OBSERVED : 0;

	if (p->protocol == bpf_htons(ETH_P_IPV6) && address_stays_on_link(&p->destination))
		return 0;
	if (policy_selects(&p->source))
		enforce |= ENFORCE_EGRESS;
	if (route->kind != ROUTE_LOCAL)
		return enforce;
	if (route->ifindex == p->skb->ifindex)
		return 0;
	return policy_selects(&p->destination) ? enforce | ENFORCE_INGRESS : enforce;
}

/*
 * A pod of this node · another node · everything else is the stack's, unless it is translated: the node itself, the
 * world, and all that a pod sends whose packets go through the stack.
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
	fc->enforce = from_pod_enforce(p, &fc->route);
	if (fc->nat_checks)
		fc->nat_checks |= (fc->enforce & ~ENFORCE_INGRESS) << NAT_CHECK_ENFORCE_SHIFT;
}

/* Who gets ICMP errors believes them: the host's stack, and pods. So none of a pod may be forged. `otherwise` is the verdict if it is not. */
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
	return route->kind == ROUTE_LOCAL || route->kind == ROUTE_REMOTE || route->kind == ROUTE_TUNNEL;
}

/* Checks the source and finds the way, or remembers both from an earlier packet. */
STAGE from_pod_lookup(struct packet *p, struct flow_cache_entry **decision)
{
	__u32 now = flow_cache_generation();
	struct flow_cache_entry *fc = flow_cache_slot(&p->source, &p->destination);
	const struct endpoint *sender;
	enum verdict v;

	if (!fc)
		return PASS; /* cannot be: every index has its element */
	*decision = fc;
	if (likely(flow_cache_hit(fc, &p->source, &p->destination, p->skb->ifindex, now)))
		return NEXT;
	sender = endpoint_of(&p->source);
	v = endpoint_check_source(p, sender);
	if (v != NEXT)
		return v == PASS ? from_pod_check_error(p, PASS) : v;
	from_pod_route(fc, p, sender);
	flow_cache_store(fc, &p->source, &p->destination, p->skb->ifindex, now);
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

	if (v == NEXT)
		v = endpoint_check_protocol(&p);
	if (v == NEXT)
		v = from_pod_lookup(&p, &fc);
	if (v == NEXT)
		v = from_pod_check_error(&p, NEXT);
	if (v == NEXT && (config_services || config_masquerade) && unlikely(fc->nat_checks))
		v = nat_translate(&p, HOOK_FROM_POD, fc->nat_checks);
	if (v == NEXT)
		v = policy_check(&p, fc);
	if (v == NEXT)
		v = from_pod_send(&p, &fc->route);
	return finish(&p, v);
}

/* Egress of the host's end of a pod's device: the host's stack delivers to a pod. Redirected packets do not come here. */

/*
 * Answers of Services that came through the stack: of backends that are the node itself, and all to pods whose packets
 * go through it. Only here may they get the Service's address, which the stack might not take from outside. They are judged
 * with it, as their connection says how the pod knows them; `fc`, which may be NULL, says by whom.
 */
STAGE to_pod_translate(struct packet *p, const struct flow_cache_entry *fc)
{
	__u32 enforce = fc ? fc->enforce : 0;

	if (!packet_is_ip(p) || !bpf_map_lookup_elem(&nat_pods, &p->destination))
		return NEXT;
	return nat_translate(p, HOOK_TO_POD, NAT_CHECK_REPLIES | enforce << NAT_CHECK_ENFORCE_SHIFT);
}

/*
 * Who asks about packets that the stack delivers. What stays on the link of IPv6 is how neighbours find each other. What a
 * pod of this node sends is counted where it comes from.
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

/* Finds out who asks about the packet, or remembers it from an earlier one. */
STAGE to_pod_lookup(struct packet *p, struct flow_cache_entry **decision)
{
	__u32 now = flow_cache_generation(), where = p->skb->ifindex | SCOPE_EGRESS, device = p->skb->ingress_ifindex;
	struct flow_cache_entry *fc;

	if (!policy_tracks() || !packet_is_ip(p))
		return NEXT;
	fc = flow_cache_slot_egress(&p->source, &p->destination);
	if (!fc)
		return drop(p, DROP_INTERNAL_ERROR); /* cannot be: every index has its element */
	if (unlikely(!flow_cache_hit(fc, &p->source, &p->destination, where, now) || fc->expires != device)) {
		if (!source_valid_from_device(&p->source, &p->destination, device))
			return drop(p, DROP_INVALID_SOURCE);
		flow_cache_store(fc, &p->source, &p->destination, where, now);
		fc->expires = device;
		to_pod_enforce(fc, p);
	}
	*decision = fc;
	return NEXT;
}

/* What is not translated. */
STAGE to_pod_policy(struct packet *p, struct flow_cache_entry *fc)
{
	return fc ? policy_check(p, fc) : NEXT;
}

SEC("tcx/egress")
int to_pod(struct __sk_buff *skb)
{
	struct packet p = {.skb = skb, .program = PROGRAM_TO_POD};
	enum verdict v = packet_parse(&p);
	struct flow_cache_entry *fc = 0;

	if (v == NEXT)
		v = endpoint_check_destination(&p);
	if (v == NEXT)
		v = to_pod_lookup(&p, &fc);
	if (v == NEXT && config_services)
		v = to_pod_translate(&p, fc);
	if (v == NEXT)
		v = to_pod_policy(&p, fc);
	return finish(&p, v);
}
