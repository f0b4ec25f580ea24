// Command image packs files into a container image, without a daemon and without a registry: one layer on an
// empty base, in a tar archive that `ctr -n k8s.io images import --local` and `docker load` take.
//
//	image -o FILE.tar -name REF [options] SRC=DEST...
//
// SRC is a file, a symbolic link or a directory; DEST is its absolute path in the image (of a directory: where its
// content goes). Modes and links are kept; owners, times and extended attributes are not: everything belongs to root and has
// one time. The same input gives the same bytes, wherever and whenever it is packed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
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

// options are what the command line says.
type options struct {
	out    string
	name   string
	gzip   bool
	epoch  time.Time
	config imageConfig
	// sources in the order they were given.
	sources []source
}

// imageConfig is what a container of the image starts with.
type imageConfig struct {
	arch       string
	entrypoint []string
	cmd        []string
	env        []string
	user       string
	workdir    string
	labels     map[string]string
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{config: imageConfig{labels: map[string]string{}}}
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.out, "o", "", "archive to write")
	f.StringVar(&o.name, "name", "", "name of the image with its tag, such as localhost/beeline:latest")
	f.BoolVar(&o.gzip, "gzip", false, "compress the layer: smaller, but slower to make and to import")
	f.StringVar(&o.config.arch, "arch", runtime.GOARCH, "architecture of the programs, in Go's words")
	f.StringVar(&o.config.user, "user", "", "user that the container runs as")
	f.StringVar(&o.config.workdir, "workdir", "", "working directory")
	f.Func("entrypoint", "program and its first arguments, separated by spaces", words(&o.config.entrypoint))
	f.Func("cmd", "arguments that whoever runs the image may replace, separated by spaces", words(&o.config.cmd))
	f.Func("env", "KEY=VALUE of the environment; can be repeated", func(s string) error {
		if key, _, ok := strings.Cut(s, "="); !ok || key == "" {
			return errors.New("not KEY=VALUE")
		}
		o.config.env = append(o.config.env, s)
		return nil
	})
	f.Func("label", "KEY=VALUE of a label; can be repeated", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return errors.New("not KEY=VALUE")
		}
		o.config.labels[key] = value
		return nil
	})
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
	var err error
	o.epoch, err = epoch(os.Getenv("SOURCE_DATE_EPOCH"))
	return o, err
}

func words(into *[]string) func(string) error {
	return func(s string) error {
		*into = strings.Fields(s)
		return nil
	}
}

// epoch reads SOURCE_DATE_EPOCH (reproducible-builds.org/specs/source-date-epoch): seconds since 1970, which
// is what it is when it is not set.
func epoch(s string) (time.Time, error) {
	if s == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
