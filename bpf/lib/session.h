/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions: what pods that policies select have to do with whom, so that answers need no rule of their own. A
 * session is known to both of its ends by the addresses and ports that the pods themselves have, whatever translation
 * makes of them in between; `connections` is for translation and knows nothing of this.
 *
 * A packet asks the permit of its decision first (permit.h). Only what has none comes here.
 */
#pragma once

#include "endpoint.h"
#include "session_ask.h"

/* Tells those who watch (--flows) what a packet has changed: `what` as for flow_session. */
static __noinline void session_tell(struct __sk_buff *skb, struct inquiry *q, const struct session *s, __u32 what)
{
	if (config_flows < FLOWS_POLICY)
		return;
	q->origin.ifindex = skb->ifindex;
	q->origin.program = q->program;
	q->origin.tcp_flags = q->transport.flags;
	flow_session(&q->key, s, &q->origin, what);
}

/* Notes who has to do with a session that begins, for those who watch. */
static __always_inline void session_identify(const struct inquiry *q, struct session *s)
{
	bool turned = s->flags & SESSION_TURNED;

	s->source = s->destination = 0;
	if (config_flows < FLOWS_POLICY || !flow_sampled(&q->key, s))
		return;
	s->source = policy_identity(turned ? &q->key.destination : &q->key.source, POLICY_BY_ALL);
	s->destination = policy_identity(turned ? &q->key.source : &q->key.destination, POLICY_BY_ALL);
}

/* Whether the end that has opened a session is no pod here. A pod's own device has shown that its packets are the pod's; the wire brings none of a pod here. */
static __always_inline bool session_is_inbound(const struct inquiry *q, bool answer)
{
	const struct tuple *t = &q->transport.tuple;

	if (q->program == PROGRAM_FROM_POD && !answer)
		return false;
	if (q->program != PROGRAM_FROM_POD && q->program != PROGRAM_TO_POD && !answer)
		return true;
	return !endpoint_of(answer ? &t->destination : &t->source);
}

/* The flags of a session that its first packet here makes. */
static __always_inline __u32 session_first_flags(const struct inquiry *q, bool answer)
{
	__u32 flags = session_parts(q->policed, answer);

	if (session_is_inbound(q, answer))
		flags |= SESSION_INBOUND;
	if (q->denied || (!answer && !inquiry_may_open(&q->transport)))
		flags |= SESSION_UNSEEN;
	if ((bool)q->turned != answer)
		flags |= SESSION_TURNED;
	if (answer)
		flags |= SESSION_ANSWERED;
	if (q->transport.flags & TCP_FIN)
		flags |= answer ? SESSION_ANSWER_FIN : SESSION_FIN;
	return flags;
}

/* Keeps the session that begins. `settled`: the one before it, with the same key, is in `sessions`. */
static __always_inline void session_keep(struct __sk_buff *skb, struct inquiry *q, bool settled)
{
	if (likely(!settled && young_begin(&q->young, &q->key, &q->session)))
		return;
	q->session.flags |= SESSION_TOLD;
	session_tell(skb, q, &q->session, flow_beginning(q->session.flags) | FLOW_FIRST);
	session_store(&q->key, &q->session);
}

/*
 * Begins a session, if the policies allow the packet. What comes late, of one that is over and kept no more, begins none: a `bare` packet, as an
 * acknowledgment or a FIN that is repeated. Nor does a reset, which ends what is not known anyway.
 */
static __always_inline int session_begin(struct __sk_buff *skb, struct inquiry *q, bool bare, bool settled)
{
	struct session *s = &q->session;
	int reason = session_ask_unknown(skb, q);
	bool answer = q->answer;

	if (reason != SESSION_ALLOWED || bare || q->transport.flags & TCP_RST)
		return reason;
	s->opened = s->seen = connection_now();
	s->packets[0] = s->packets[1] = s->bytes[0] = s->bytes[1] = 0;
	if (!(q->policed & POLICED_ELSEWHERE))
		session_count(s, answer, 1, skb->len);
	s->revision = q->revision;
	s->slot = SESSION_NO_SLOT;
	s->flags = session_first_flags(q, answer);
	session_identify(q, s);
	session_keep(skb, q, settled);
	return SESSION_ALLOWED;
}

/* Notes that a session is no longer allowed. */
static __always_inline void session_revoke(struct __sk_buff *skb, struct inquiry *q, struct session *s)
{
	__u32 flags = __sync_fetch_and_or(&s->flags, SESSION_REVOKED | SESSION_TOLD);

	if (!(flags & SESSION_REVOKED))
		session_tell(skb, q, s, FLOW_REVOKED | (flags & SESSION_TOLD ? 0 : FLOW_FIRST));
}

/*
 * Judges a session again, if policies have changed since, or that end for which nobody has judged it yet. A session that
 * is no longer allowed stays, so that its packets are not taken for those of a new one.
 */
static __always_inline int session_ask_again(struct __sk_buff *skb, struct inquiry *q, struct session *s, bool answer)
{
	__u32 parts = session_parts(q->policed, answer), judged = SESSION_EGRESS | SESSION_INGRESS;
	bool renewed = s->revision != q->revision;
	__u32 flags = s->flags, missing = renewed ? parts : parts & ~flags;
	int reason;

	if (likely(!missing))
		return SESSION_ALLOWED;
	reason = q->denied ? session_ask(skb, session_parts(q->policed, !answer), !answer) : SESSION_ALLOWED;
	if (reason == SESSION_ALLOWED)
		reason = session_ask(skb, missing, answer);
	if (reason != SESSION_ALLOWED) {
		if (answer && flags & SESSION_UNSEEN)
			return SESSION_DOUBTED;
		if (!(renewed && flags & judged) && !(flags & SESSION_ANSWERED))
			return inquiry_may_open(&q->transport) && answer ? SESSION_UNKNOWN
									 : reason; /* it has never been allowed */
		session_revoke(skb, q, s);
		return reason;
	}
	if (renewed)
		__sync_fetch_and_and(&s->flags, ~(judged | SESSION_REVOKED));
	if (missing & SESSION_EGRESS)
		s->egress = q->session.egress;
	if (missing & SESSION_INGRESS)
		s->ingress = q->session.ingress;
	__sync_fetch_and_or(&s->flags, missing);
	s->revision = q->revision;
	return SESSION_ALLOWED;
}

/* Tells once that TCP has ended a session. */
static __always_inline void session_close(struct __sk_buff *skb, struct inquiry *q, struct session *s)
{
	__u32 flags = __sync_fetch_and_or(&s->flags, SESSION_TOLD | SESSION_TOLD_END);

	if (!(flags & SESSION_TOLD_END))
		session_tell(skb, q, s, FLOW_CLOSED | (flags & SESSION_TOLD ? 0 : FLOW_FIRST));
}

/* What a packet that is allowed changes of its session, which has the flags `before`. */
static __always_inline __u32 session_news(const struct transport *t, bool answer, __u32 before)
{
	__u32 flags = answer ? SESSION_ANSWERED : 0;

	if (!answer && before & SESSION_ANSWERED && !(t->flags & TCP_SYN))
		flags |= SESSION_LASTING;
	if (t->flags & TCP_FIN)
		flags |= answer ? SESSION_ANSWER_FIN : SESSION_FIN;
	if (t->flags & TCP_RST)
		flags |= SESSION_RESET;
	return flags;
}

/* Notes a packet that is allowed. */
static __always_inline void session_note(struct __sk_buff *skb, struct inquiry *q, struct session *s, bool answer,
					 __u64 now)
{
	__u32 news = session_news(&q->transport, answer, s->flags) & ~s->flags, old;

	if (!(q->policed & POLICED_ELSEWHERE))
		session_count(s, answer, 1, skb->len);
	if (now - s->seen >= CONNECTION_SECOND)
		s->seen = now;
	if (likely(!news))
		return;
	old = __sync_fetch_and_or(&s->flags, news);
	if (news & ~old & SESSION_ANSWERED && old & SESSION_TOLD)
		session_tell(skb, q, s, FLOW_ANSWERED);
	if (session_is_over(old | news))
		session_close(skb, q, s);
	else if (news & ~old & SESSION_LASTING && s->slot != SESSION_NO_SLOT)
		session_promote(&q->key, s);
}

/*
 * The session of a packet that is not in its place among the young ones. What opens a connection is not looked for in `sessions`, whose memory
 * would be in no cache: unless it may be sent again, it is of another one than what is there.
 */
static __always_inline struct session *session_settled(const struct inquiry *q, const struct young_session *place)
{
	if (inquiry_is_opening(&q->transport) && place && place->waiting < young_clock(connection_now()))
		return 0;
	return bpf_map_lookup_elem(&sessions, &q->key);
}

/* A packet of a session that is known; SESSION_UNKNOWN if another one begins in its place. */
static __always_inline int session_go_on(struct __sk_buff *skb, struct inquiry *q, struct session *s)
{
	bool answer = session_direction(s, q->turned);
	int reason;

	if (inquiry_is_opening(&q->transport) && (answer || session_is_over(s->flags) || s->flags & SESSION_REVOKED))
		return SESSION_UNKNOWN;
	reason = session_ask_again(skb, q, s, answer);
	if (reason == SESSION_ALLOWED)
		session_note(skb, q, s, answer, connection_now());
	return reason;
}

/* An ICMP error about a packet of a session: as good as that. Nothing begins with it. */
static __always_inline int session_ask_error(struct __sk_buff *skb, struct inquiry *q, const struct session *s)
{
	__u32 parts;
	bool answer;

	if (!s)
		return session_ask_unknown_error(skb, q);
	answer = session_direction(s, q->turned);
	parts = session_parts(q->policed, answer);
	if (s->revision == q->revision)
		parts &= ~s->flags;
	return parts ? session_ask(skb, parts, answer) : SESSION_ALLOWED;
}

/*
 * Whether the packets that follow this one need not be asked about for a while: also those that follow a SYN or a FIN, which is noted by
 * now. A reset may be of no session.
 */
static __always_inline bool session_may_permit(const struct transport *t)
{
	return t->kind == TRANSPORT_PORTS && transport_has_ports(t->tuple.protocol) &&
	       t->tuple.protocol != PROTOCOL_SCTP && !(t->flags & TCP_RST);
}

/* Whether the permit is of packets like this one. */
static __always_inline bool session_has_permit(const struct permit *permit, const struct transport *t)
{
	return permit->protocol == t->tuple.protocol && permit->sender_port == t->tuple.source_port &&
	       permit->destination_port == t->tuple.destination_port &&
	       address_equals(&permit->sender, &t->tuple.source);
}

/* Takes the permit back as permit_end, which it asks only if the session is not at hand: `s`, of this packet, may be NULL. */
static __always_inline void session_end_permit(struct decision *d, const struct inquiry *q, struct session *s)
{
	struct permit *permit = &d->permit;

	if (permit->packets) {
		if (!s || permit->elsewhere || !session_has_permit(permit, &q->transport)) {
			permit_end(d);
			return;
		}
		session_count(s, session_direction(s, q->turned), permit->packets, permit->bytes);
		permit->packets = 0;
		permit->bytes = 0;
	}
	permit->protocol = 0;
}

static __always_inline void session_permit(struct decision *d, const struct inquiry *q)
{
	const struct tuple *t = &q->transport.tuple;
	struct permit *permit = &d->permit;

	permit->source_port = q->source_port;
	permit->destination_port = q->destination_port;
	permit->sender_port = t->source_port;
	permit->protocol = t->protocol;
	permit->elsewhere = !!(q->policed & POLICED_ELSEWHERE);
	permit->revision = q->revision;
	permit->until = permit_now();
	permit->sender = t->source;
}

/*
 * Whether a session is to be judged again as opened by the other end too: policies have changed, nobody saw it begin, and a socket of who
 * counts as its opener has accepted it.
 */
static __always_inline bool session_is_denied(struct __sk_buff *skb, const struct inquiry *q, const struct session *s)
{
	if (s->revision == q->revision || !(s->flags & SESSION_UNSEEN) || inquiry_is_opening(&q->transport) ||
	    !(q->policed & (POLICED_EGRESS | POLICED_INGRESS)))
		return false;
	return session_socket(skb, session_direction(s, q->turned) ? SOCKETS_OF_RECEIVER : SOCKETS_OF_SENDER) ==
	       SOCKET_ACCEPTED;
}

/*
 * Whether the packet in `inquiries` may go on: SESSION_ALLOWED, or a reason to drop it. `d` is the decision that the permit
 * is kept with; NULL: none is. A missing scratch must not open a pod.
 */
SEPARATE int session_judge(struct __sk_buff *skb, struct decision *d)
{
	struct inquiry *q = inquiry_place(); /* found, so that it has keys of maps */
	struct young_session *young;
	struct session *s;
	int reason;
	bool bare;

	if (!policy_tracks())
		return SESSION_ALLOWED;
	if (!q)
		return DROP_POLICY_CLOSED; /* cannot be: the index has its element */
	q->revision = policy_revision();
	q->known = q->transport.kind == TRANSPORT_PORTS ? POLICY_KNOWN_PORT : POLICY_KNOWN_PROTOCOL;
	if (unlikely(q->transport.kind == TRANSPORT_BROKEN))
		return DROP_BAD_FRAGMENT;
	if (unlikely(q->transport.kind == TRANSPORT_UNREADABLE && q->policed & (POLICED_EGRESS | POLICED_INGRESS)))
		return DROP_UNREADABLE;
	if (q->transport.kind == TRANSPORT_PIECE ||
	    (q->transport.kind == TRANSPORT_OTHER && transport_has_ports(q->transport.tuple.protocol))) {
		reason = session_ask(skb, session_parts(q->policed, false), false);
		if (reason != SESSION_ALLOWED && !session_is_closed(reason) && q->transport.kind == TRANSPORT_PIECE)
			return DROP_UNKNOWN_FRAGMENT;
		return reason;
	}
	/* Nobody outside takes part in what a pod has to do with itself; a permit would not ask who sends. */
	if (unlikely(session_is_to_itself(q))) {
		if (!session_is_free(skb, q))
			return session_ask(skb, session_parts(q->policed, false), false);
		d = 0;
	}
	q->turned = session_key(&q->key, &q->transport.tuple);
	q->young = young_index(&q->key);
	young = young_place(&q->young);
	s = young && young_is(young, &q->key) ? &young->session : 0;
	if (!s) {
		s = session_settled(q, young);
		young = 0;
	}
	if (d && d->permit.protocol)
		session_end_permit(d, q, s);
	if (unlikely(q->transport.kind == TRANSPORT_ERROR)) {
		q->known = POLICY_KNOWN_PORT;
		return session_ask_error(skb, q, s);
	}
	q->denied = s && session_is_denied(skb, q, s);
	for (;;) { /* twice at most */
		reason = s ? session_go_on(skb, q, s) : SESSION_UNKNOWN;
		if (likely(!young || young_is(young, &q->key)))
			break;
		/* It has moved meanwhile, or what was looked at was another one already, which has got the place. */
		young = 0;
		s = bpf_map_lookup_elem(&sessions, &q->key);
	}
	q->doubted = reason == SESSION_DOUBTED;
	bare = reason == SESSION_UNKNOWN && !s && inquiry_is_bare(skb, &q->transport);
	if (bare)
		d = 0; /* there is no session that a permit would be of */
	if (reason == SESSION_UNKNOWN || q->doubted)
		reason = session_begin(skb, q, bare, s && !young);
	if (unlikely(q->doubted && reason != SESSION_ALLOWED && s))
		session_revoke(skb, q, s);
	if (reason == SESSION_ALLOWED && d && session_may_permit(&q->transport))
		session_permit(d, q);
	return reason;
}

/*
 * Whether to_pod will count the packet: the stack gets it for its options (endpoint_deliver) and delivers it, and its sender is not one
 * whose packets are counted where they leave it (to_pod_decide).
 */
static __always_inline bool session_is_counted_behind(const struct packet *p, const struct decision *d)
{
	if (!p->options || p->program == PROGRAM_TO_POD)
		return false;
	return p->program != PROGRAM_FROM_POD || !(d->policed & (POLICED_EGRESS | POLICED_OBSERVED));
}

/* Asks about a packet that goes as it is, or whose source alone becomes that of connection *c, unless that is NULL. */
static __noinline enum verdict session_ask_plain(struct packet *p, struct decision *d, const struct connection *c)
{
	struct inquiry *q = inquiry_place();
	int reason;

	if (!q)
		return drop(p, DROP_POLICY_CLOSED); /* cannot be: the index has its element */
	q->program = p->program;
	q->policed = d->policed;
	if (unlikely(session_is_counted_behind(p, d))) {
		q->policed |= POLICED_ELSEWHERE;
		d = 0; /* a permit would not count either */
	}
	inquiry_read(p, q);
	q->source_port = q->transport.tuple.source_port;
	q->destination_port = q->transport.tuple.destination_port;
	q->sender = p->source;
	q->peer = c ? c->source : q->transport.tuple.source;
	q->peer_port = c ? c->source_port : q->source_port;
	q->asked = q->transport.tuple.destination;
	q->asked_port = q->destination_port;
	q->replies = c && inquiry_replies(c);
	reason = session_judge(p->skb, d);
	return reason == SESSION_ALLOWED ? NEXT : drop(p, reason);
}

/* Lets a packet pass that goes as it is, if policies allow it; d->policed says whose. */
STAGE session_pass(struct packet *p, struct decision *d)
{
	if (!policy_tracks() || likely(!d->policed) || likely(permit_holds(p, d)))
		return NEXT;
	return session_ask_plain(p, d, 0);
}
