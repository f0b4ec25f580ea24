package node

import (
	"context"
	"log/slog"
	"math/bits"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
)

const (
	// leastRoutes is enough for more nodes than Kubernetes supports (5,000), of both families.
	leastRoutes = 1 << 15
	// routesEach is twice the number of prefixes of a node: its pod range and an address of each family.
	routesEach = 8
	// countPatience is how long an agent waits for the number of nodes. ADD waits for it, traffic does not.
	countPatience = 2 * time.Second
)

// counter is a Source that can count nodes before it runs.
type counter interface {
	CountNodes(context.Context) (int, error)
}

// RoutesCapacity is the number of prefixes that the datapath's table must hold: by the number of nodes now, and never
// less than that of an earlier agent, which may have known more.
func RoutesCapacity(bpffs string, source cluster.Source, log *slog.Logger) (uint32, error) {
	before, err := datapath.RoutesSize(bpffs)
	if err != nil {
		return 0, err
	}
	nodes := 0
	if of, ok := source.(counter); ok {
		ctx, cancel := context.WithTimeout(context.Background(), countPatience)
		defer cancel()
		if nodes, err = of.CountNodes(ctx); err != nil {
			log.Info("number of nodes unknown, the table of routes keeps its size", "size", max(before, leastRoutes), "error", err)
		}
	}
	return max(before, routesFor(nodes)), nil
}

// routesFor is enough prefixes for a number of nodes: a power of two, because hash maps round up to one anyway.
func routesFor(nodes int) uint32 {
	return uint32(max(leastRoutes, min(value.MaxTableSize, 1<<bits.Len(uint(max(0, min(routesEach*nodes-1, value.MaxTableSize-1)))))))
}
