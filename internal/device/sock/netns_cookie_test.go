package sock

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

func TestNetnsCookie(t *testing.T) {
	own, err := NetnsCookie()
	if err != nil {
		t.Fatal(err)
	}
	devicetest.Inside(t, testenv.NewNetns(t), func() error {
		other, err := NetnsCookie()
		if other == own {
			t.Errorf("two namespaces have the cookie %d", own)
		}
		return err
	})
}
