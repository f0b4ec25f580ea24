package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Up makes a lab. Where it fails, it takes down what it made.
func Up(ctx context.Context, o Options) (lab *Lab, err error) {
	o = o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	root, err := Requirements()
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, o.Name, true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := isFree(o.Name, root); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lab, err = nil, errors.Join(err, takeDown(context.WithoutCancel(ctx), o.Name, root))
		}
	}()
	lab = &Lab{Options: o, CongestionControl: congestionControl(), nodes: planNodes(o, root)}
	r := record{Options: o, CongestionControl: lab.CongestionControl}
	if err := r.write(); err != nil {
		return nil, err
	}
	if err := lab.make(ctx); err != nil {
		return nil, fmt.Errorf("make lab %q: %w", o.Name, err)
	}
	r.Ready = true
	return lab, r.write()
}

func (l *Lab) make(ctx context.Context) error {
	for _, n := range l.nodes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.makeNode(n); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if l.Outside {
		if err := os.MkdirAll(l.Client().Cgroup, 0o755); err != nil {
			return err
		}
	}
	if err := l.makeWire(ctx); err != nil {
		return fmt.Errorf("make wire: %w", err)
	}
	for _, n := range l.nodes {
		if err := l.configure(ctx, n); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := l.waitForNeighbours(ctx); err != nil {
		return err
	}
	return l.writeHosts()
}

func (l *Lab) makeNode(n *Node) error {
	for _, dir := range []string{n.StateDir, n.BPFFS, podsDir(n), n.Cgroup} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountBPF(n.BPFFS); err != nil {
		return err
	}
	return l.makeNetns(n.Netns, l.IPv6)
}

// Requirements returns the mount of cgroup v2, or one sentence on what this machine lacks for a lab. What the
// kernel lacks of network namespaces, veth and bpffs shows, as plainly, where Up needs it.
func Requirements() (cgroup string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("a lab makes network namespaces, mounts and cgroups and needs root: run it with sudo")
	}
	return cgroupRoot()
}

// isFree says why the name of a lab is not free.
func isFree(name, root string) error {
	_, err := readReady(name)
	if err == nil {
		return fmt.Errorf("lab %q is up already: take it down first, or choose another name", name)
	}
	spaces, err := markedNetns()
	if err != nil {
		return err
	}
	_, noRecord := os.Stat(recordPath(name))
	_, noCgroup := os.Stat(labCgroup(root, name))
	if noRecord == nil || noCgroup == nil || len(spaces[name]) > 0 {
		return fmt.Errorf("lab %q was left half made by a command that was interrupted: take it down first", name)
	}
	return nil
}

// Open returns a lab that is up; ErrNotUp where there is none of that name or only a part of one.
func Open(name string) (*Lab, error) {
	root, err := Requirements()
	if err != nil {
		return nil, err
	}
	r, err := readReady(name)
	if err != nil {
		return nil, err
	}
	return &Lab{Options: r.Options, CongestionControl: r.CongestionControl, nodes: planNodes(r.Options, root)}, nil
}
