/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Verdicts of stages, and macros that every file uses. */
#pragma once

#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>
#include "maps.h"

/* Every stage returns a verdict. The program goes on to the next stage only with NEXT. */
enum verdict {
	NEXT = 0,
	PASS,	  /* to later programs at the hook, and to the kernel stack */
	REDIRECT, /* packet.action holds the result of the redirect helper */
	DROP,	  /* packet.reason says why */
};

/* The common path comes first in the code, which helps the instruction cache. */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/*
 * A global function: the verifier checks it once for each program instead of at each call (Linux 5.6; with
 * pointers to structs, 5.12). It takes no packet pointers and must NULL-check pointer arguments. Linux 6.1 does
 * not accept such a pointer as key or value of a map: copy it to the stack, or look the struct up again.
 */
#define GLOBAL_FN __attribute__((noinline))

#define STAGE static __always_inline __attribute__((warn_unused_result)) enum verdict

/*
 * Return codes that tcx (enum tcx_action_base) and clsact filters (TC_ACT_UNSPEC, TC_ACT_SHOT) share, so one
 * object serves both.
 */
enum tc_action {
	TC_NEXT = -1,
	TC_ACCEPT = 0, /* no later program sees the packet */
	TC_DROP = 2,
};
