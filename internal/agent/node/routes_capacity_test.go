package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/cluster"
)

type counted struct {
	cluster.Source
	nodes int
	err   error
}

func (c counted) CountNodes(context.Context) (int, error) { return c.nodes, c.err }

// The capacity of routes follows the size of the cluster, and has a default where that is unknown.
func TestRoutesCapacity(t *testing.T) {
	for _, c := range []struct {
		of   cluster.Source
		want uint32
	}{
		{counted{nodes: 0}, 32768},
		{counted{nodes: 5000}, 65536},
		{counted{nodes: 8192}, 65536},
		{counted{nodes: 8193}, 131072},
		{counted{nodes: 1 << 30}, value.MaxTableSize},
		{counted{err: errors.New("no response")}, 32768},
		{cluster.NewManifests(t.TempDir(), slog.New(slog.DiscardHandler)), 32768},
	} {
		got, err := RoutesCapacity(t.TempDir(), c.of, slog.New(slog.DiscardHandler))
		if err != nil || got != c.want {
			t.Errorf("%+v: capacity %d, want %d: %v", c.of, got, c.want, err)
		}
	}
}
