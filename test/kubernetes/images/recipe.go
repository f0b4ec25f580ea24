// Package images makes the container images of a cluster from the binaries and from Debian packages, as archives that
// containerd imports. Nothing comes from a registry: the images have the names that the upstream tests use, below
// localhost.
package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/config"
)

// RepositoryList is the content of the file $KUBE_TEST_REPO_LIST, with which upstream's tests replace their registries.
const RepositoryList = `promoterE2eRegistry: localhost/e2e
gcRegistry: localhost/k8s
buildImageRegistry: localhost/build
`

// Sets of Debian packages.
const (
	// toolbox has the programs that the tests run inside agnhost.
	toolbox = "toolbox"
	// small has little more than a shell.
	small = "small"
)

var packages = map[string][]string{
	toolbox: {
		"bash", "bind9-dnsutils", "bind9-host", "coreutils", "curl", "dash", "findutils", "grep", "iperf", "iproute2",
		"iputils-ping", "libc-bin", "mawk", "netcat-openbsd", "procps", "sed", "util-linux", "wget",
	},
	small: {"busybox", "conntrack"},
}

// image is the recipe of an image.
type image struct {
	// base is a set of packages, or empty.
	base string
	// programs are programs of the cache by name, with their paths in the image.
	programs map[string]string
	// files are files of Kubernetes' sources by path, with their paths in the image.
	files map[string]string
	// extra is a tree made by this package, by name.
	extra string
	// entrypoint and cmd are separated by spaces.
	entrypoint, cmd string
}

// recipes are the images by the last part of their names, without the tag, which upstream's tests choose.
var recipes = map[string]image{
	"agnhost": agnhost,
	"busybox": {base: small, extra: applets, cmd: "sh"},
	// The network tests need only a server with a page instead of nginx.
	"nginx": {base: small, extra: applets, cmd: "/bin/busybox httpd -f -p 80 -h /www"},
	"regression-issue-74839": {
		programs:   map[string]string{"regression-issue-74839": "/regression-issue-74839"},
		entrypoint: "/regression-issue-74839",
	},
	"pause":   {extra: pauseProgram, entrypoint: "/pause"},
	"coredns": {programs: map[string]string{"coredns": "/coredns"}, entrypoint: "/coredns"},
}

// aliases are images with the content of another: the tests give the program to run.
var aliases = map[string]string{"glibc-dns-testing": "agnhost", "distroless-iptables": "busybox"}

// agnhost is upstream's image of tools and small servers.
var agnhost = image{
	base:       toolbox,
	programs:   map[string]string{"agnhost": "/agnhost", "coredns": "/coredns"},
	files:      map[string]string{porter + "localhost.crt": "/localhost.crt", porter + "localhost.key": "/localhost.key"},
	extra:      agnhostFiles,
	entrypoint: "/agnhost",
	cmd:        "pause",
}

// porter is a server in agnhost, with its certificate in the same directory.
const porter = "test/images/agnhost/porter/"

// essential are the images that a node needs before it runs pods, with their names.
var essential = map[string]string{"pause": config.PauseImage, "coredns": config.CoreDNSImage}

// Archive is an image archive.
type Archive struct {
	// File is its path.
	File string
	// Names are the names of the image: the first is in the archive.
	Names []string
	// Essential reports whether a node needs it before it runs pods.
	Essential bool
}

// match assigns the names in the output of `e2e.test --list-images` to recipes, and adds the essential ones.
func match(listed string) map[string][]string {
	names := map[string][]string{}
	for name := range strings.FieldsSeq(listed) {
		if !strings.HasPrefix(name, "localhost/") {
			continue
		}
		short := shortName(name)
		if alias, ok := aliases[short]; ok {
			short = alias
		}
		if _, ok := recipes[short]; ok && essential[short] == "" && !slices.Contains(names[short], name) {
			names[short] = append(names[short], name)
		}
	}
	for short, name := range essential {
		names[short] = []string{name}
	}
	for short := range names {
		slices.Sort(names[short])
	}
	return names
}

// shortName returns the last part of an image's name without the tag: the key of recipes.
func shortName(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	short, _, _ := strings.Cut(name, ":")
	return short
}

// text is the cache key of the image, except for its binaries.
func (i image) text() string {
	text := fmt.Sprintf("%+v %v", i, packages[i.base])
	switch i.extra {
	case "":
	case pauseProgram:
		text += " " + pauseSource
	default:
		text += " " + extraScript
	}
	return text
}
