package harness

import (
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// The Service that pods use in these tests.
var FrontendOfPods = End{fixtures.ClusterIP, 80}
