package device

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestRemoveOldRules(t *testing.T) {
	inside(t, testenv.NewNetns(t), func() error {
		if removed, err := RemoveOldRules(); removed || err != nil {
			t.Errorf("without a table: removed %t, error %v", removed, err)
		}
		for _, table := range []string{"inet beeline", "inet other", "ip beeline"} {
			rules := fmt.Sprintf("table %s { chain postrouting { type nat hook postrouting priority 100; masquerade; }\n }", table)
			if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		if removed, err := RemoveOldRules(); !removed || err != nil {
			t.Errorf("removed %t, error %v", removed, err)
		}
		out, err := exec.Command("nft", "list", "tables").CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != "table inet other\ntable ip beeline" {
			t.Errorf("left are %q", got)
		}
		return err
	})
}
