package datapath

import (
	"errors"
	"log/slog"
)

// opened is a datapath with the objects that it was assembled of.
type opened struct {
	*Datapath
	objects *objects
}

// open is Open with these programs.
func open(cfg Config, programs []string, log *slog.Logger) (*opened, error) {
	o, err := openObjects(cfg, programs, log)
	if err != nil {
		return nil, err
	}
	return assemble(o)
}

func assemble(o *objects) (*opened, error) {
	d := &opened{Assemble(o), o}
	if err := d.Sessions.divide(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// unload takes the programs off everything, removes the pins and closes the datapath.
func unload(d *opened) error {
	_, err := d.Remove()
	return errors.Join(err, d.Close())
}
