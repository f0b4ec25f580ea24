package harness

import (
	"errors"
	"log/slog"

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// Opened is a datapath with the objects that it was assembled of.
type Opened struct {
	*datapath.Datapath
	Objects *load.Objects
}

// Open is Open with these programs.
func Open(cfg config.Datapath, programs []string, log *slog.Logger) (*Opened, error) {
	o, err := load.Open(cfg, programs, log)
	if err != nil {
		return nil, err
	}
	return assemble(o)
}

func assemble(o *load.Objects) (*Opened, error) {
	d := &Opened{datapath.Assemble(o), o}
	if err := d.Conntrack.Divide(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Unload takes the programs off everything, removes the pins and closes the datapath.
func Unload(d *Opened) error {
	_, err := d.Remove()
	return errors.Join(err, d.Close())
}
