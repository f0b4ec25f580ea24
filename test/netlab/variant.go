package netlab

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A variant is a build of these sources that tests start. Its name is its version string.
const (
	// Current is the build under test.
	Current = "current"
	// Newer is another build of the same sources, to upgrade to.
	Newer = "newer"
	// OtherLayouts is a build whose maps have other layouts of the same size than those of Current.
	OtherLayouts = "layouts"
)

// Variants are all of them.
var Variants = []string{Current, Newer, OtherLayouts}

// VariantsVariable is the environment variable that names the directory with all variants, for a machine that cannot build them.
const VariantsVariable = "BEELINE_BUILDS"

// Variant returns a variant: the one below $BEELINE_BUILDS, or else it is built from the module in the directory
// sources, in a directory of its name below dir.
func Variant(sources, dir, name string) (Programs, error) {
	if builds := os.Getenv(VariantsVariable); builds != "" {
		p := Programs{filepath.Join(builds, name)}
		if _, err := os.Stat(p.Agent()); err != nil {
			return Programs{}, fmt.Errorf("find build %s ($%s): %w", name, VariantsVariable, err)
		}
		return p, nil
	}
	if name != OtherLayouts {
		return Build(sources, dir, name)
	}
	overlay, err := renameMembers(sources, dir)
	if err != nil {
		return Programs{}, err
	}
	return Build(sources, dir, name, "-overlay", overlay)
}

// renamedMembers maps members of map entries to other names of the same length: at least one in each group of maps that
// refer to each other, and some in other maps.
var renamedMembers = map[string]string{
	"pod_mac":      "mac_pod",      // of `endpoints`
	"next_hop_mac": "mac_next_hop", // of `routes`
	"maglev_width": "width_maglev", // of `services`
	"created":      "started",      // of `nat` and of `conntrack`
	"egress":       "output",       // of `policy_pods`
}

// renameMembers writes an object of the datapath with other names of members: other layouts of the same size, and the
// same programs. It returns the overlay file for go build (go help build, -overlay).
func renameMembers(sources, dir string) (overlay string, err error) {
	object, err := filepath.Abs(filepath.Join(sources, "internal/datapath/bpf/bpf_bpfel.o"))
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(object)
	if err != nil {
		return "", err
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", object, err)
	}
	types := file.Section(".BTF")
	if types == nil {
		return "", fmt.Errorf("%s has no section .BTF", object)
	}
	within := data[types.Offset : types.Offset+types.Size]
	for from, to := range renamedMembers {
		at := bytes.Index(within, []byte("\x00"+from+"\x00"))
		if at < 0 || len(from) != len(to) {
			return "", fmt.Errorf("cannot rename a member of %s from %s to %s", object, from, to)
		}
		copy(within[at+1:], to)
	}
	renamed := filepath.Join(dir, "bpf_bpfel.o")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{object: renamed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(renamed, data, 0o600), os.WriteFile(overlay, text, 0o600))
}
