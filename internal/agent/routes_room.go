package agent

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
	// routesEach is room for twice the prefixes of a node: its pod range and an address of each family.
	routesEach = 8
	// countPatience is how long an agent waits to hear how large the cluster is: traffic does not wait for it, ADD does.
	countPatience = 2 * time.Second
)

// counter is a Source that can say how many nodes there are before it runs.
type counter interface {
	CountNodes(context.Context) (int, error)
}

// routesRoom is how many prefixes the datapath has to have room for: by the number of nodes now, and never less than an earlier agent had,
// who may have known more.
func routesRoom(bpffs string, source cluster.Source, log *slog.Logger) (uint32, error) {
	before, err := datapath.RoutesSize(bpffs)
	if err != nil {
		return 0, err
	}
	nodes := 0
	if of, ok := source.(counter); ok {
		ctx, cancel := context.WithTimeout(context.Background(), countPatience)
		defer cancel()
		if nodes, err = of.CountNodes(ctx); err != nil {
			log.Info("how many nodes there are is not known yet: the table of routes keeps its size", "size", max(before, leastRoutes), "error", err)
		}
	}
	return max(before, routesFor(nodes)), nil
}

// routesFor is how many prefixes are enough for so many nodes: a power of two, as which hashes take their memory anyway.
func routesFor(nodes int) uint32 {
	return uint32(max(leastRoutes, min(value.MaxTableSize, 1<<bits.Len(uint(max(0, min(routesEach*nodes-1, value.MaxTableSize-1)))))))
}
