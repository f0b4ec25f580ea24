package load

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/internal/datapath/config"
)

// MarksPath is a symbolic link whose target is not a path but the numbers of config.Datapath that the programs of one node
// share and no pod may guess.
func MarksPath(root string) string { return filepath.Join(root, "marks") }

// withMarks gives the configuration the numbers of the programs that an earlier agent has attached, or new ones. While an
// agent replaces the programs one by one, a packet passes old ones and new ones: with other numbers they would drop it.
func withMarks(cfg config.Datapath) (config.Datapath, error) {
	if cfg.Handled != 0 && cfg.MacvlanSource != 0 {
		return cfg, nil
	}
	if err := requireBPFFS(cfg.Root); err != nil {
		return cfg, err
	}
	if err := os.MkdirAll(cfg.Root, 0o700); err != nil {
		return cfg, fmt.Errorf("make directory for pins: %w", err)
	}
	handled, source, err := readMarks(cfg.Root)
	if errors.Is(err, os.ErrNotExist) {
		handled, source = randomNumber(), randomNumber()
		err = os.Symlink(fmt.Sprintf("%016x,%016x", handled, source), MarksPath(cfg.Root))
	}
	if err != nil {
		return cfg, fmt.Errorf("numbers that programs of the node share: %w", err)
	}
	if cfg.Handled == 0 {
		cfg.Handled = handled
	}
	if cfg.MacvlanSource == 0 {
		cfg.MacvlanSource = source
	}
	return cfg, nil
}

// readMarks reads the numbers of an earlier agent. The error is os.ErrNotExist if there is none, or what is there is not
// readable.
func readMarks(root string) (handled, source uint64, err error) {
	path := MarksPath(root)
	text, err := os.Readlink(path)
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(text, "%016x,%016x", &handled, &source); err != nil || handled == 0 || source == 0 {
		return 0, 0, errors.Join(os.ErrNotExist, os.Remove(path))
	}
	return handled, source, nil
}

// randomNumber is one that a pod cannot guess.
func randomNumber() uint64 {
	var number [8]byte
	_, _ = rand.Read(number[:]) // never fails
	return binary.NativeEndian.Uint64(number[:])
}
