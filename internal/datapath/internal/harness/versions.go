package harness

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// OpenVersion is open for programs of another version; nil is this one.
func OpenVersion(tb testing.TB, cfg config.Datapath, version func(testing.TB, *ebpf.CollectionSpec), programs []string) (*Opened, error) {
	tb.Helper()
	l, err := load.NewLoader(cfg, fixtures.TestLog(tb))
	if err != nil {
		return nil, err
	}
	if version != nil {
		version(tb, l.Spec)
	}
	o, err := l.Open(cfg, programs, fixtures.TestLog(tb))
	if err != nil {
		return nil, err
	}
	return assemble(o)
}
