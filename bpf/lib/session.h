/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions: what pods that policies select have to do with whom, so that answers need no rule of their own. A
 * session is known to both of its ends by the addresses and ports that the pods themselves have, whatever translation
 * makes of them in between; `connections` is for translation and knows nothing of this.
 *
 * A packet asks the permit of its decision first (permit.h). Only what has none comes here.
 */
#pragma once

#include "inquiry.h"

/* What becomes of a packet, besides a drop with its reason, which is above 0. */
enum session_answer {
	SESSION_ALLOWED = 0,
	SESSION_UNKNOWN = -1, /* begins one, if policies allow that */
	SESSION_DOUBTED = -2, /* is of one whose opener may be the other end: the same, or that is revoked */
};

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

/* Which directions of a session, as who opened it has them, are governed by pods here, by the flags of a packet. `answer`: it is not from who opened it. */
static __always_inline __u32 session_parts(__u32 policed, bool answer)
{
	__u32 parts = 0;

	if (policed & POLICED_EGRESS)
		parts |= answer ? SESSION_INGRESS : SESSION_EGRESS;
	if (policed & POLICED_INGRESS)
		parts |= answer ? SESSION_EGRESS : SESSION_INGRESS;
	return parts;
}

static __always_inline bool session_is_to_itself(const struct inquiry *q)
{
	return address_equals(&q->transport.tuple.source, &q->transport.tuple.destination);
}

/*
 * What is allowed whatever policies say: a pod reaches itself, also through its Service, and its own node, and is reached by
 * that. The stack may have given the pod another address on its way back to it (kube-proxy). Who is outside may write any source:
 * only a pod's own device says that it is the pod, and only that nobody has sent it that it is the node.
 */
static __always_inline bool session_is_free(struct __sk_buff *skb, const struct inquiry *q)
{
	const struct tuple *t = &q->transport.tuple;

	if (q->program == PROGRAM_FROM_POD)
		return session_is_to_itself(q) || policy_identity(&t->destination, POLICY_BY_ALL) == IDENTITY_NODE;
	if (q->program != PROGRAM_TO_POD)
		return false;
	return skb->ingress_ifindex == skb->ifindex ||
	       (!skb->ingress_ifindex && policy_identity(&t->source, POLICY_BY_ALL) == IDENTITY_NODE);
}

/*
 * What the rules of one end say about the other, which `set` is about: the NetworkPolicy that allows it, or below 0 the reason to
 * drop. What bears this node's address need not be the node's: the stack masquerades what it forwards (kube-proxy).
 */
static __always_inline __s64 session_ask_rules(const struct inquiry *q, __u32 set, const struct address *other,
					       __be16 port, enum drop_reason forbidden)
{
	__u32 identity;
	__s64 policy;

	if (!set)
		return 0;
	if (set == SET_CLOSED)
		return -(__s64)DROP_POLICY_CLOSED;
	identity = policy_identity(other, POLICY_BY_ALL);
	if (unlikely(identity == IDENTITY_NODE))
		identity = policy_identity(other, POLICY_BY_BLOCKS);
	policy = policy_ask(set, identity, policy_what(q->transport.tuple.protocol, port, q->known), q->revision);
	return policy == POLICY_FORBIDS ? -(__s64)forbidden : policy;
}

/*
 * Asks the policies of those ends that `parts` (enum session_flag) names about a session that the packet's sender opens,
 * or its receiver with `answer`. SESSION_ALLOWED, with who allows it in q->session, or a reason to drop.
 */
SEPARATE int session_ask(struct __sk_buff *skb, __u32 parts, bool answer)
{
	struct inquiry *q = inquiry_place(); /* found, so that it has keys of maps */
	const struct address *opener, *other;
	__s64 egress = 0, ingress = 0;
	const struct policed_pod *pod;
	const struct tuple *t;
	__be16 port;

	if (!policy_tracks())
		return SESSION_ALLOWED;
	if (!q)
		return DROP_POLICY_CLOSED; /* cannot be: the index has its element */
	t = &q->transport.tuple;
	opener = answer ? &t->destination : &t->source;
	other = answer ? &t->source : &t->destination;
	port = answer ? t->source_port : t->destination_port;
	if (parts & SESSION_EGRESS) {
		pod = bpf_map_lookup_elem(&policed_pods, opener);
		egress = session_ask_rules(q, pod ? pod->egress : 0, other, port, DROP_EGRESS_POLICY);
	}
	if (parts & SESSION_INGRESS && egress >= 0) {
		pod = bpf_map_lookup_elem(&policed_pods, other);
		ingress = session_ask_rules(q, pod ? pod->ingress : 0, opener, port, DROP_INGRESS_POLICY);
	}
	if (egress < 0 || ingress < 0) {
		if (!session_is_free(skb, q))
			return egress < 0 ? -egress : -ingress;
		egress = ingress = 0;
	}
	q->session.egress = egress;
	q->session.ingress = ingress;
	return SESSION_ALLOWED;
}

/* Whether a port is one that systems give to who opens connections (Linux by default, and RFC 6335, 6). */
static __always_inline bool session_port_is_clients(__be16 port)
{
	return bpf_ntohs(port) >= 32768;
}

/* How well it is known who has opened the session of a packet that is the first of it here. */
enum session_opener {
	SESSION_OPENER_CERTAIN = 0,
	SESSION_OPENER_LIKELY, /* by the ports */
	SESSION_OPENER_EITHER,
};

/*
 * Who has opened a connection of TCP that is in its middle and is not known here: it began before there were
 * policies, or was pushed out of `sessions`. *answer: the receiver. A server's port tells, most of the time.
 */
static __always_inline enum session_opener session_guess_opener(const struct transport *t, bool *answer)
{
	bool sender = session_port_is_clients(t->tuple.source_port);
	bool receiver = session_port_is_clients(t->tuple.destination_port);

	*answer = false;
	if (t->kind == TRANSPORT_ERROR)
		return SESSION_OPENER_EITHER;
	if (inquiry_may_open(t))
		return SESSION_OPENER_CERTAIN;
	*answer = t->flags & TCP_SYN || receiver > sender;
	if (t->flags & TCP_SYN)
		return SESSION_OPENER_CERTAIN;
	return sender == receiver ? SESSION_OPENER_EITHER : SESSION_OPENER_LIKELY;
}

/*
 * Asks about a packet of no known session. With SESSION_ALLOWED, *answer says whether the receiver has opened it. What the
 * likely opener may not open, the other one may have: if a rule allows it that, it is believed, whatever the ports. That nothing
 * isolates it in that direction is not enough, or connections from before a policy would go on that it forbids.
 */
static __always_inline int session_ask_unknown(struct __sk_buff *skb, struct inquiry *q, bool *answer)
{
	enum session_opener opener = session_guess_opener(&q->transport, answer);
	int reason = session_ask(skb, session_parts(q->policed, *answer), *answer);

	if (reason == SESSION_ALLOWED || opener == SESSION_OPENER_CERTAIN)
		return reason;
	*answer = !*answer;
	if (session_ask(skb, session_parts(q->policed, *answer), *answer) != SESSION_ALLOWED)
		return reason;
	return opener == SESSION_OPENER_EITHER || q->session.egress || q->session.ingress ? SESSION_ALLOWED : reason;
}

/* Whether a session that begins with this packet may have been opened by its other end. */
static __always_inline bool session_is_guessed(const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP && !(t->flags & TCP_SYN);
}

/* The flags of a session that its first packet here makes. */
static __always_inline __u32 session_first_flags(const struct inquiry *q, bool answer)
{
	__u32 flags = session_parts(q->policed, answer);

	if (session_is_guessed(&q->transport))
		flags |= SESSION_GUESSED;
	if ((bool)q->turned != answer)
		flags |= SESSION_TURNED;
	if (answer)
		flags |= SESSION_ANSWERED;
	if (q->transport.flags & TCP_FIN)
		flags |= answer ? SESSION_ANSWER_FIN : SESSION_FIN;
	return flags;
}

/* Keeps the session that begins. `settled`: the one before it, with the same key, is in `sessions`. */
static __noinline void session_keep(struct __sk_buff *skb, struct inquiry *q, bool settled)
{
	if (likely(!settled && young_begin(&q->young, &q->key, &q->session)))
		return;
	q->session.flags |= SESSION_TOLD;
	bpf_map_update_elem(&sessions, &q->key, &q->session, BPF_ANY);
	session_tell(skb, q, &q->session, FLOW_OPENED | FLOW_FIRST);
}

/*
 * Whether a packet of TCP in one piece carries nothing. Its frame may be longer, since Ethernet's are filled up to 60 bytes: the
 * length that IP tells is asked for, which is 0 where that cannot be told.
 */
static __noinline bool session_is_empty(struct __sk_buff *skb, const struct transport *t)
{
	bool ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	__be16 length = 0;
	__u8 words = 0;

	bpf_skb_load_bytes(skb, ETH_HLEN + (ipv4 ? 2 : 4), &length, sizeof(length));
	bpf_skb_load_bytes(skb, t->offset + __builtin_offsetof(struct transport_header, words), &words, sizeof(words));
	return length &&
	       ETH_HLEN + (ipv4 ? 0 : sizeof(struct ipv6hdr)) + bpf_ntohs(length) <= t->offset + (words >> 4) * 4;
}

/* Whether a packet is TCP's, opens nothing and carries nothing. */
static __always_inline bool session_is_bare(struct __sk_buff *skb, const struct transport *t)
{
	return t->tuple.protocol == PROTOCOL_TCP && !(t->flags & TCP_SYN) && !t->in_pieces && session_is_empty(skb, t);
}

/*
 * Begins a session, if the policies allow the packet. What comes late, of one that is over and kept no more, begins none: a `bare` packet, as an
 * acknowledgment or a FIN that is repeated. Nor does a reset, which ends what is not known anyway.
 */
static __always_inline int session_begin(struct __sk_buff *skb, struct inquiry *q, __u64 now, bool bare, bool settled)
{
	struct session *s = &q->session;
	bool answer = false;
	int reason = session_ask_unknown(skb, q, &answer);

	if (reason != SESSION_ALLOWED || bare || q->transport.flags & TCP_RST)
		return reason;
	s->opened = s->seen = now;
	s->packets[0] = s->packets[1] = s->bytes[0] = s->bytes[1] = 0;
	if (!(q->policed & POLICED_ELSEWHERE))
		session_count(s, answer, 1, skb->len);
	s->revision = q->revision;
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
	reason = session_ask(skb, missing, answer);
	if (reason != SESSION_ALLOWED) {
		if (flags & SESSION_GUESSED)
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

/* What a packet that is allowed changes of its session. */
static __always_inline __u32 session_news(const struct transport *t, bool answer)
{
	__u32 flags = answer ? SESSION_ANSWERED : 0;

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
	__u32 news = session_news(&q->transport, answer) & ~s->flags, old;

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
static __always_inline int session_go_on(struct __sk_buff *skb, struct inquiry *q, struct session *s, __u64 now)
{
	bool answer = session_direction(s, q->turned);
	int reason;

	if (inquiry_is_opening(&q->transport) && (answer || session_is_over(s->flags) || s->flags & SESSION_REVOKED))
		return SESSION_UNKNOWN;
	reason = session_ask_again(skb, q, s, answer);
	if (reason == SESSION_ALLOWED)
		session_note(skb, q, s, answer, now);
	return reason;
}

/* An ICMP error about a packet of a session: as good as that. Nothing begins with it. */
static __always_inline int session_ask_error(struct __sk_buff *skb, struct inquiry *q, const struct session *s)
{
	__u32 parts;
	bool answer;

	if (!s)
		return session_ask_unknown(skb, q, &answer);
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
 * Whether the packet in `inquiries` may go on: SESSION_ALLOWED, or a reason to drop it. `d` is the decision that the permit
 * is kept with; NULL: none is. A missing scratch must not open a pod.
 */
SEPARATE int session_judge(struct __sk_buff *skb, struct decision *d)
{
	struct inquiry *q = inquiry_place(); /* found, so that it has keys of maps */
	struct young_session *young;
	struct session *s;
	int reason;
	bool doubted, bare;
	__u64 now;

	if (!policy_tracks())
		return SESSION_ALLOWED;
	if (!q)
		return DROP_POLICY_CLOSED; /* cannot be: the index has its element */
	q->revision = policy_revision();
	q->known = q->transport.kind == TRANSPORT_PORTS ? POLICY_KNOWN_PORT : POLICY_KNOWN_PROTOCOL;
	if (q->transport.kind == TRANSPORT_PIECE ||
	    (q->transport.kind == TRANSPORT_OTHER && transport_has_ports(q->transport.tuple.protocol))) {
		reason = session_ask(skb, session_parts(q->policed, false), false);
		if (reason != SESSION_ALLOWED && reason != DROP_POLICY_CLOSED && q->transport.kind == TRANSPORT_PIECE)
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
	now = connection_now();
	for (;;) { /* twice at most */
		reason = s ? session_go_on(skb, q, s, now) : SESSION_UNKNOWN;
		if (likely(!young || young_is(young, &q->key)))
			break;
		/* It has moved meanwhile, or what was looked at was another one already, which has got the place. */
		young = 0;
		s = bpf_map_lookup_elem(&sessions, &q->key);
	}
	doubted = reason == SESSION_DOUBTED;
	bare = reason == SESSION_UNKNOWN && !s && session_is_bare(skb, &q->transport);
	if (bare)
		d = 0; /* there is no session that a permit would be of */
	if (reason == SESSION_UNKNOWN || doubted)
		reason = session_begin(skb, q, now, bare, s && !young);
	if (unlikely(doubted && reason != SESSION_ALLOWED && s))
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

/* Asks about a packet that goes as it is. */
static __noinline enum verdict session_ask_plain(struct packet *p, struct decision *d)
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
	reason = session_judge(p->skb, d);
	return reason == SESSION_ALLOWED ? NEXT : drop(p, reason);
}

/* Lets a packet pass that goes as it is, if policies allow it; d->policed says whose. */
STAGE session_pass(struct packet *p, struct decision *d)
{
	if (!policy_tracks() || likely(!d->policed) || likely(permit_holds(p, d)))
		return NEXT;
	return session_ask_plain(p, d);
}
