package testenv

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// A namespace goes with its test also while somebody holds it open.
func TestNetnsGoes(t *testing.T) {
	Root(t)
	var held *os.File
	path := ""
	t.Run("holding", func(t *testing.T) {
		path = NewNetns(t).Path()
		var err error
		if held, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
	})
	defer held.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}
