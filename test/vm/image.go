package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
)

//go:embed init.sh
var initScript string

// moduleTrees are the parts of a kernel's modules that networking may ask for.
var moduleTrees = []string{"net", "lib", "crypto", "arch/x86/crypto", "drivers/net"}

// image is what QEMU boots.
type image struct{ kernel, initrd string }

// buildImage makes the root file system of a kernel's machines: busybox, the kernel's modules, the sources (tests read
// files beside them) and the tests, with the names of those that each machine runs. The kernel unpacks archives that follow each other
// as if they were one.
func buildImage(ctx context.Context, s store, work string, k kernel, tests []testBinary, machines int) (image, error) {
	box, err := s.get(ctx, "busybox", debian{name: "busybox-static"}, func(string) error { return nil })
	if err != nil {
		return image{}, err
	}
	busybox := filepath.Join(box, "bin/busybox")
	tree, err := s.get(ctx, "linux-"+k.version, k.pkg, func(dir string) error { return prepareModules(ctx, dir, busybox) })
	if err != nil {
		return image{}, err
	}
	found, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if err != nil || len(found) != 1 {
		return image{}, fmt.Errorf("%d kernels in %s, want one: remove the directory to fetch it again", len(found), tree)
	}
	img := image{kernel: found[0], initrd: filepath.Join(work, k.version+"-"+k.device+".cpio")}

	root := filepath.Join(work, "root-"+k.version+"-"+k.device)
	if err := fillRoot(ctx, s, root, busybox, k, tests, machines); err != nil {
		return image{}, err
	}
	_, err = output(ctx, root, "sh", "-euc", `{ cat "$2"; find . | "$1" cpio -o -H newc; } >"$3"`, "sh", busybox, filepath.Join(tree, "modules.cpio"), img.initrd)
	return img, err
}

// prepareModules makes modules.cpio of the modules, unpacked and indexed for modprobe.
func prepareModules(ctx context.Context, dir, busybox string) error {
	const script = `
		busybox=$1
		shift
		[ -d lib/modules ] || { mkdir -p lib && mv usr/lib/modules lib/modules; } # since Debian 13
		release=$(ls lib/modules)
		mkdir -p m/lib/modules/$release/kernel
		for part in "$@"; do
			mkdir -p "m/lib/modules/$release/kernel/$part"
			cp -r "lib/modules/$release/kernel/$part/." "m/lib/modules/$release/kernel/$part"
		done
		cp lib/modules/$release/modules.builtin* lib/modules/$release/modules.order m/lib/modules/$release
		find m -name '*.ko.xz' -exec xz -d {} +
		/sbin/depmod -b m "$release" 2>/dev/null
		(cd m && find . | "$busybox" cpio -o -H newc >../modules.cpio)
		rm -rf lib usr m`
	_, err := output(ctx, dir, "sh", append([]string{"-euc", script, "sh", busybox}, moduleTrees...)...)
	return err
}

func fillRoot(ctx context.Context, s store, root, busybox string, k kernel, tests []testBinary, machines int) error {
	var list strings.Builder
	for _, t := range tests {
		if len(t.names) > 0 {
			fmt.Fprintln(&list, t.dir)
		}
	}
	const script = `mkdir -p "$2/src" "$2/bin"; cp -r bpf internal docs go.mod "$2/src"; cp "$1" "$2/bin/busybox"`
	if _, err := output(ctx, "", "sh", "-euc", script, "sh", busybox, root); err != nil {
		return err
	}
	for _, name := range programs {
		if err := copyProgram(ctx, root, name); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(tests, func(t testBinary) bool { return startsPrograms(t.dir) && len(t.names) > 0 }) {
		if err := fillPrograms(ctx, root); err != nil {
			return fmt.Errorf("prepare the tests of the programs: %w", err)
		}
	}
	if slices.ContainsFunc(tests, func(t testBinary) bool { return t.dir == encryptionDir && len(t.names) > 0 }) {
		for _, name := range benchPrograms {
			if err := copyProgram(ctx, root, name); err != nil {
				return err
			}
		}
	}
	dealt := make(load, machines)
	for _, t := range tests {
		if len(t.names) == 0 {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, "src", t.dir), 0o755); err != nil {
			return err
		}
		if err := file.Copy(filepath.Join(root, "src", t.dir, "vm.test"), t.path, 0o755); err != nil {
			return err
		}
		subtests := ""
		if t.dir == networkDir {
			subtests = networkSubtests
			if err := fillNetwork(ctx, s, root); err != nil {
				return fmt.Errorf("prepare the test of a network: %w", err)
			}
		}
		for part, names := range dealt.deal(t.dir, t.names) {
			pattern := "^(" + strings.Join(names, "|") + ")$" + subtests
			if len(names) == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(root, "src", t.dir, fmt.Sprintf("vm.run.%d", part)), []byte(pattern), 0o644); err != nil {
				return err
			}
		}
	}
	require := ""
	if k.complete {
		require = "1"
	}
	for name, content := range map[string]string{"init": initScript, "tests": list.String(), "require": require, "skip": k.skip} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// copyProgram puts a program of this machine, and the libraries that it loads, into the same places below root.
func copyProgram(ctx context.Context, root, name string) error {
	const script = `
		path=$(command -v "$1") || { echo "the tests call $1, which is not installed (make deps)" >&2; exit 1; }
		for file in "$path" $(ldd "$path" | grep -o '/\S* (0x' | cut -d ' ' -f 1); do
			mkdir -p "$2${file%/*}"
			cp "$file" "$2$file"
		done`
	_, err := output(ctx, "", "sh", "-euc", script, "sh", name, root)
	return err
}
