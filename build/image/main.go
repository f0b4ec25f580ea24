// Command image packs files into a container image without a daemon or a registry: one layer on an empty base, in a tar archive for
// `ctr -n k8s.io images import --local` and `docker load`.
//
//	image -o FILE.tar -name REF [options] SRC=DEST...
//
// SRC is a file, a symbolic link or a directory; DEST is its absolute path in the image. The content of a directory goes below DEST.
// Modes and links are kept. Everything belongs to root and has one time; extended attributes are dropped. The same input gives the
// same bytes on every machine. The command is a module of its own, because nothing else needs its libraries.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	syscall.Umask(0o022) // the archive has the modes of the files that this program writes
	os.Exit(run(os.Args[1:], os.Stderr))
}

func run(args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = pack(o)
	}
	if err != nil {
		fmt.Fprintf(stderr, "image: %v\n", err)
		return 1
	}
	return 0
}

// options are the command line.
type options struct {
	out, name string
	gzip      bool
	config    v1.Config
	// sources are in the order of the command line.
	sources []source
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{config: v1.Config{Labels: map[string]string{}}}
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.out, "o", "", "archive to write")
	f.StringVar(&o.name, "name", "", "name of the image with its tag, such as localhost/beeline:latest")
	f.BoolVar(&o.gzip, "gzip", false, "compress the layer: smaller, but slower to make")
	f.StringVar(&o.config.User, "user", "", "user of the container's process")
	f.Func("entrypoint", "program and its first arguments, separated by spaces", words(&o.config.Entrypoint))
	f.Func("cmd", "default arguments, separated by spaces", words(&o.config.Cmd))
	f.Func("env", "KEY=VALUE of the environment; can be repeated", pair(func(key, value string) {
		o.config.Env = append(o.config.Env, key+"="+value)
	}))
	f.Func("label", "KEY=VALUE of a label; can be repeated", pair(func(key, value string) { o.config.Labels[key] = value }))
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.out == "" || o.name == "" || f.NArg() == 0 {
		return o, errors.New("-o, -name and at least one SRC=DEST are needed")
	}
	for _, arg := range f.Args() {
		s, err := parseSource(arg)
		if err != nil {
			return o, err
		}
		o.sources = append(o.sources, s)
	}
	return o, nil
}

func words(into *[]string) func(string) error {
	return func(s string) error {
		*into = strings.Fields(s)
		return nil
	}
}

// pair parses KEY=VALUE.
func pair(set func(key, value string)) func(string) error {
	return func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return errors.New("not KEY=VALUE")
		}
		set(key, value)
		return nil
	}
}
