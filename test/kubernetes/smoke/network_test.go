//go:build kubernetes

package smoke

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// onTestbed returns the testbed's plan of the cluster, if it is the testbed's.
func onTestbed() (plan.Cluster, bool) {
	if bed, is := cluster.(*testbed.Testbed); is {
		return bed.Cluster, true
	}
	return plan.Cluster{}, false
}

// needTestbed skips a test that only the testbed allows.
func needTestbed(t *testing.T, what string) *testbed.Testbed {
	t.Helper()
	bed, is := cluster.(*testbed.Testbed)
	if !is {
		testenv.Missing(t, "only the testbed allows to "+what)
	}
	return bed
}

// needOutside skips a test with external traffic if this machine does not reach the nodes.
func needOutside(t *testing.T) {
	t.Helper()
	if _, is := onTestbed(); is {
		return
	}
	address := net.JoinHostPort(clusterNodes(t)[0].address, "10250")
	c, err := net.DialTimeout("tcp", address, 3*time.Second)
	if err != nil {
		testenv.Missing(t, "this machine does not reach the kubelet at "+address+": "+err.Error())
	}
	c.Close()
}

// isBeeline reports whether Beeline is the cluster's network.
var isBeeline = sync.OnceValue(func() bool {
	if c, is := onTestbed(); is {
		return c.Options.Network == plan.NetworkBeeline
	}
	_, err := kubectl("-n", agentNamespace, "get", agentDaemonSet)
	return err == nil
})
