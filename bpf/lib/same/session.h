/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Policy of a message that no packet carries. The packets that opened the connection made its conntrack entry; it
 * has to exist and to be allowed in the current policy revision, for every message. Otherwise the message leaves as
 * packets, which the datapath evaluates, counts and reports. So this can only be stricter than the datapath.
 *
 * Runs in the context of the sending process, where packets interrupt it: no scratch maps, and counters are atomic.
 */
#pragma once

#include "lib/nat/nat_entry.h"
#include "lib/policy/ct_new.h"
#include "lib/same/pair.h"

/* The directions that policies apply to, as the initiator sees them: enum ct_flag. */
static __always_inline __u32 session_directions(const struct same_node_sock *s, const struct ct_entry *ct)
{
	bool reversed = ct->flags & CT_REVERSED;
	__u32 initiator = reversed ? SAME_NODE_SELECTED_DESTINATION : SAME_NODE_SELECTED_SOURCE;
	__u32 responder = reversed ? SAME_NODE_SELECTED_SOURCE : SAME_NODE_SELECTED_DESTINATION;

	return (s->selected & initiator ? CT_EGRESS : 0) | (s->selected & responder ? CT_INGRESS : 0);
}

/* Evaluates the policies of the named directions, as policy_verdict does. */
static __always_inline bool session_evaluate(const struct same_node_sock *s, const struct ct_entry *ct,
					     __u32 directions)
{
	bool reversed = ct->flags & CT_REVERSED;
	struct address initiator = reversed ? s->session.destination : s->session.source;
	struct address responder = reversed ? s->session.source : s->session.destination;
	__be16 port = reversed ? s->session.source_port : s->session.destination_port;
	__u32 proto_port = policy_proto_port(PROTOCOL_TCP, port, POLICY_KNOWN_PORT);
	const struct policy_pod *pod;

	if (directions & CT_EGRESS) {
		pod = bpf_map_lookup_elem(&policy_pods, &initiator);
		if (policy_rules(pod ? pod->egress : 0, &responder, proto_port, DROP_EGRESS_POLICY) < 0)
			return false;
	}
	if (!(directions & CT_INGRESS))
		return true;
	pod = bpf_map_lookup_elem(&policy_pods, &responder);
	return policy_rules(pod ? pod->ingress : 0, &initiator, proto_port, DROP_INGRESS_POLICY) >= 0;
}

/*
 * Whether the entry is allowed in the current policy revision. The result of an evaluation is kept with the socket:
 * packets may replace the entry at any time, so the program does not write to its flags.
 */
static __always_inline bool session_is_allowed(struct same_node_sock *s, const struct ct_entry *ct, __u32 directions)
{
	__u32 revision = policy_revision();
	__u64 created = ct->created;

	if (unlikely(ct->flags & CT_REVOKED || ct_is_closed(ct->flags)))
		return false;
	if (likely(ct->revision == revision && !(directions & ~ct->flags)))
		return true;
	if (s->evaluated == created && s->revision == revision)
		return true;
	/* Who initiated it is not known for sure: packets look at the sockets. */
	if (ct->flags & CT_MIDSTREAM || !session_evaluate(s, ct, directions))
		return false;
	s->evaluated = created;
	s->revision = revision;
	return true;
}

/* Whether policies allow a message of this size; counts it in the conntrack entry. */
static __always_inline bool session_check(struct same_node_sock *s, __u32 bytes)
{
	struct ct_new_entry *slot;
	struct ct_entry *ct;
	__u64 now;

	if (!policy_tracks() || (!s->selected && config_flows != FLOWS_ALL))
		return true;
	slot = ct_new_find(&s->session);
	ct = slot ? &slot->entry : bpf_map_lookup_elem(&conntrack, &s->session);
	if (!ct)
		return !s->selected;
	if (!session_is_allowed(s, ct, session_directions(s, ct)))
		return !s->selected;
	if (slot && !ct_new_is(slot, &s->session))
		return !s->selected; /* the entry was moved or replaced meanwhile */
	ct_count(ct, ct_direction(ct, s->reversed), 1, bytes);
	now = ktime_coarse();
	if (now - ct->seen >= NSEC_PER_SEC)
		ct->seen = now;
	return true;
}
