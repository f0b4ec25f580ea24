/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Multiplicative hash (Knuth, The Art of Computer Programming, volume 3, 6.4): take the upper bits of the product. */
#pragma once

/* 2^32 divided by the golden ratio, made odd. internal/datapath repeats it for hashes that Go computes as well. */
#define HASH_MULTIPLIER 0x9e3779b1
