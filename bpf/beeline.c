// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The datapath, in the order a packet meets it. README.md tells the journeys. */
#include "types.h"
#include "config.h"
#include "maps.h"
#include "from_pod.h"
#include "to_wire.h"
#include "to_tunnel.h"
#include "from_wire.h"
#include "from_tunnel.h"
#include "to_pod.h"
#include "wire_xdp.h"
#include "connect.h"
#include "datagram.h"
#include "settle.h"
#include "forget.h"
#include "tell_drops.h"

/* GPL-only helpers need a licence the kernel knows; it means GPL-2.0-only OR BSD-2-Clause. */
char datapath_license[] SEC("license") = "Dual BSD/GPL";
