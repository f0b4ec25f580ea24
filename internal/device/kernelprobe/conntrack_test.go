package kernelprobe

import (
	"os"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestLoadConntrack(t *testing.T) {
	testenv.Root(t)
	if err := LoadConntrack(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count"); err != nil {
		t.Errorf("connection tracking is not there: %v", err)
	}
}
