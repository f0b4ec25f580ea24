/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Definitions of maps. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* A map of type BPF_MAP_TYPE_<kind>. */
#define MAP(name, kind, entries, flags, key_type, value_type)                                                          \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_##kind);                                                                      \
		__uint(max_entries, entries);                                                                           \
		__uint(map_flags, flags);                                                                               \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")
