//go:build kubernetes

package smoke

import (
	"strings"
	"sync"
)

// isBeeline tells whether the cluster was brought up with Beeline as its network.
var isBeeline = sync.OnceValue(func() bool {
	said, err := outside().run("sh", "-c", "echo $BEELINE_KUBERNETES_NETWORK")
	return err == nil && strings.TrimSpace(said) == "beeline"
})
