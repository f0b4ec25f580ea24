/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a stage decides about a packet, and the one place where a decision is counted and carried out. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

/* Every stage returns one of these; only NEXT lets the following stage see the packet. */
enum verdict {
	NEXT = 0,
	PASS,	  /* hand it to the programs after ours and to the host's stack */
	REDIRECT, /* packet.action holds what the redirect helper returned */
	DROP,	  /* packet.reason says why */
};

/* What nearly every packet takes comes first in the code: the caches hold it better than the rest. */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/*
 * A function that the verifier checks by itself, once for each program and not for each call and all that its callers
 * may know (Linux 5.6; of pointers to structs, 5.12). It gets no pointers into packets, and has to ask whether those it gets
 * are NULL, which they never are. Where they point to is neither key nor value of a map for Linux 6.1: that has to be a
 * copy on the stack, or what a lookup has found.
 */
#define GLOBAL_FN __attribute__((noinline))

#define STAGE static __always_inline __attribute__((warn_unused_result)) enum verdict

/*
 * The codes that tcx (include/uapi/linux/bpf.h, enum tcx_action_base) and clsact filters (TC_ACT_UNSPEC,
 * TC_ACT_SHOT) share: the same object serves both.
 */
enum tc_action {
	TC_NEXT = -1,
	TC_DROP = 2,
};
