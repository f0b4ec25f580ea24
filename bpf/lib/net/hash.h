/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The multiplicative hash (Knuth, The Art of Computer Programming, volume 3, 6.4): the upper bits of a product tell words apart. */
#pragma once

/* 2^32 divided by the golden ratio, made odd. Go's side of hashes that both compute repeats it (internal/datapath). */
#define HASH_MULTIPLIER 0x9e3779b1
