// Package script has networks under test that programs in a directory make: anybody compares a CNI plugin with others without a
// change of the lab. docs/networks.md describes the contract for their authors.
package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Network is a network that programs make.
type Network struct {
	name, dir string
	about     About
}

// prefix begins the value of an element NAME=exec:DIR.
const prefix = "exec:"

// Parse takes the elements of the form NAME=exec:DIR out of a list of networks' names. An error names the element.
func Parse(list []string) (rest []string, networks []network.Network, err error) {
	for _, element := range list {
		name, value, _ := strings.Cut(element, "=")
		dir, is := strings.CutPrefix(value, prefix)
		if !is {
			rest = append(rest, element)
			continue
		}
		n, err := open(name, dir)
		if err != nil {
			return nil, nil, fmt.Errorf("%q: %w", element, err)
		}
		networks = append(networks, n)
	}
	return rest, networks, nil
}

// open reads what the directory says about the network.
func open(name, dir string) (n Network, err error) {
	switch {
	case name == "" || strings.ContainsAny(name, " /,=") || strings.HasPrefix(name, "node") || strings.HasPrefix(name, "beeline"):
		return n, errors.New("want NAME=exec:DIR, with a name of its own, such as flannel=exec:lab/networks/flannel")
	case dir == "":
		return n, errors.New("DIR is missing, as in NAME=exec:DIR")
	}
	n.name = name
	if n.dir, err = filepath.Abs(dir); err != nil {
		return n, err
	}
	if !n.has(programUp) {
		return n, fmt.Errorf("%s is no program that can be executed", n.program(programUp))
	}
	if n.has(programAdd) != n.has(programDel) {
		return n, fmt.Errorf("%s has one of %s and %s: a network has both, or a CNI configuration", n.dir, programAdd, programDel)
	}
	err = file.ReadJSON(filepath.Join(n.dir, aboutFile), &n.about)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	n.about.Description = cmp.Or(n.about.Description, "made by the programs in "+dir)
	return n, err
}

// Name is the one on the command line.
func (n Network) Name() string { return n.name }

// Description is for the report.
func (n Network) Description() string { return n.about.Description }

// Unsupported names a missing program.
func (n Network) Unsupported() string {
	for _, program := range n.about.Needs {
		if _, err := exec.LookPath(program); err != nil {
			return "not installed: " + program
		}
	}
	return ""
}

// Up runs the program build, then up on each node, then ready on each. After an error it runs down.
func (n Network) Up(ctx context.Context, lab *testbed.Lab) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Down(context.WithoutCancel(ctx), lab))
		}
	}()
	if err := n.build(ctx); err != nil {
		return err
	}
	for _, node := range lab.Nodes() {
		said, err := n.run(ctx, lab, node, programUp, nil)
		if err != nil {
			return err
		}
		var out Output
		if len(bytes.TrimSpace(said)) > 0 {
			if err := json.Unmarshal(said, &out); err != nil {
				return fmt.Errorf("read what %s prints: %w", n.program(programUp), err)
			}
		}
		if len(out.Conflist) == 0 && !n.has(programAdd) {
			return fmt.Errorf("%s prints no conflist, and there is no program %s", n.program(programUp), programAdd)
		}
		if err := file.WriteJSON(stateFile(node), out); err != nil {
			return err
		}
	}
	for _, node := range lab.Nodes() {
		if !n.has(programReady) {
			break
		}
		if _, err := n.run(ctx, lab, node, programReady, nil); err != nil {
			return err
		}
	}
	return nil
}

// Down runs the program down on each node, if there is one. The lab's own end removes all else.
func (n Network) Down(ctx context.Context, lab *testbed.Lab) error {
	if !n.has(programDown) {
		return nil
	}
	var errs []error
	for _, node := range lab.Nodes() {
		_, err := n.run(ctx, lab, node, programDown, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stateFile has what the program up has printed on a node.
func stateFile(node *testbed.Node) string { return filepath.Join(node.StateDir, "network.json") }

// outputOf is what the program up has printed on a node.
func outputOf(node *testbed.Node) (out Output, err error) {
	return out, file.ReadJSON(stateFile(node), &out)
}

// Plugin is the configuration that up has printed for the node, or one of the programs add-pod and del-pod.
func (n Network) Plugin(lab *testbed.Lab, node *testbed.Node) (*plugin.Network, error) {
	out, err := outputOf(node)
	if err != nil {
		return nil, fmt.Errorf("network %s on %s: %w", n.name, node.Name, err)
	}
	if !n.has(programAdd) {
		cni, err := plugin.ReadNetwork(node, out.dirs(), out.Conflist)
		return &cni, err
	}
	cni, err := plugin.CallNetwork(node, n.name, func(ctx context.Context, environ map[string]string) ([]byte, error) {
		name := programAdd
		switch environ["CNI_COMMAND"] {
		case "ADD":
		case "DEL":
			name = programDel
		default:
			return nil, nil // STATUS and GC change nothing
		}
		return n.run(ctx, lab, node, name, environ)
	})
	return &cni, err
}

// dirs are the directories of plugins.
func (o Output) dirs() []string {
	if len(o.PluginDirs) > 0 {
		return o.PluginDirs
	}
	return network.ReferenceDirs
}

// Facts are what up has printed on the first node.
func (n Network) Facts(_ context.Context, lab *testbed.Lab) map[string]string {
	facts := map[string]string{"made by": n.dir}
	out, err := outputOf(lab.Node(0))
	if err != nil {
		facts["made by"] += ": " + err.Error()
	}
	maps.Copy(facts, out.Facts)
	return facts
}

// AgentPID is the process that up has named on a node, 0 for none.
func (Network) AgentPID(node *testbed.Node) int {
	out, err := outputOf(node)
	if err != nil {
		return 0
	}
	return out.AgentPID
}

func (n Network) program(name string) string { return filepath.Join(n.dir, name) }

// has reports whether the directory has a program.
func (n Network) has(name string) bool {
	info, err := os.Stat(n.program(name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
