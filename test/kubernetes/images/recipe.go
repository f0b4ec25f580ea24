// Package images makes the container images of a cluster from the binaries and from Debian packages, as archives
// that containerd imports. Nothing comes from a registry: the images bear the names that the upstream tests ask for, below
// localhost.
package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/config"
)

// RepositoryList is what the file holds that upstream's tests read from $KUBE_TEST_REPO_LIST: the registries
// that take the place of theirs.
const RepositoryList = `promoterE2eRegistry: localhost/e2e
gcRegistry: localhost/k8s
buildImageRegistry: localhost/build
`

// Sets of Debian packages that images are made of.
const (
	// toolbox has the programs that the tests run inside agnhost.
	toolbox = "toolbox"
	// small is for images that have little more than a shell.
	small = "small"
)

var packages = map[string][]string{
	toolbox: {
		"bash", "bind9-dnsutils", "bind9-host", "coreutils", "curl", "dash", "findutils", "grep", "iperf", "iproute2",
		"iputils-ping", "libc-bin", "mawk", "netcat-openbsd", "procps", "sed", "util-linux", "wget",
	},
	small: {"busybox", "conntrack"},
}

// image is the recipe of one.
type image struct {
	// base is a set of packages, or nothing.
	base string
	// programs from the cache of binaries: name → place.
	programs map[string]string
	// files of the sources of Kubernetes: path → place.
	files map[string]string
	// extra are trees made by this package, by name.
	extra []string
	// entrypoint and cmd are separated by spaces.
	entrypoint, cmd string
}

// recipes are the images by the last part of their names without tag; upstream decides which tags its tests ask for.
var recipes = map[string]image{
	"agnhost": agnhost,
	"busybox": {base: small, extra: []string{applets}, cmd: "sh"},
	// A server that answers with a page is all that the tests of the network want of nginx.
	"nginx": {base: small, extra: []string{applets, page}, cmd: "/bin/busybox httpd -f -p 80 -h /www"},
	"regression-issue-74839": {
		programs:   map[string]string{"regression-issue-74839": "/regression-issue-74839"},
		entrypoint: "/regression-issue-74839",
	},
	"pause":   {extra: []string{pauseProgram}, entrypoint: "/pause"},
	"coredns": {programs: map[string]string{"coredns": "/coredns"}, entrypoint: "/coredns"},
}

// aliases are images that are the same as another here: the tests name the program to run in them.
var aliases = map[string]string{"glibc-dns-testing": "agnhost", "distroless-iptables": "busybox"}

// agnhost is upstream's image of tools and small servers, of which the tests use nearly everything.
var agnhost = image{
	base:       toolbox,
	programs:   map[string]string{"agnhost": "/agnhost", "coredns": "/coredns"},
	files:      map[string]string{porter + "localhost.crt": "/localhost.crt", porter + "localhost.key": "/localhost.key"},
	extra:      []string{agnhostFiles},
	entrypoint: "/agnhost",
	cmd:        "pause",
}

// porter is a server inside agnhost; it looks for its certificate beside it.
const porter = "test/images/agnhost/porter/"

// essential are the images that a node must have before it runs any pod, with their names.
var essential = map[string]string{"pause": config.PauseImage, "coredns": config.CoreDNSImage}

// Archive is a file with an image.
type Archive struct {
	// File is its path.
	File string
	// Names are those that the image goes by: the first is in the archive.
	Names []string
	// Essential tells that nodes do not work without it.
	Essential bool
}

// match sorts the names that `e2e.test --list-images` printed by the recipes that there are for them, and adds
// those that nodes need.
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

// shortName is the last part of an image's name, without tag: the key of recipes.
func shortName(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	short, _, _ := strings.Cut(name, ":")
	return short
}

// text is everything that decides what the image becomes, apart from the binaries in it.
func (i image) text() string {
	text := fmt.Sprintf("%+v %v %v", i, packages[i.base], extraTexts(i.extra))
	if slices.Contains(i.extra, pauseProgram) {
		text += " " + pauseSource
	}
	return text
}
