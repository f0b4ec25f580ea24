// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath, in the order a packet meets it. README.md tells the journeys. */
#include "types.h"
#include "config.h"
#include "maps.h"
#include "prog/pod.h"
#include "prog/wire.h"
#include "prog/tunnel.h"
#include "prog/xdp.h"
#include "lib/lb/sock.h"
#include "prog/sock.h"
#include "prog/maintenance.h"

/* GPL-only helpers need a licence the kernel knows; it means GPL-2.0-only OR BSD-2-Clause. */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
