// Package kubebuild builds Kubernetes and what it needs from the Go modules that hold their sources. What is built
// stays in a cache, beside the recipe it was built by: a changed recipe builds again.
package kubebuild

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

// Version is the Kubernetes of the lab and, unless a person chooses another, of test clusters, without "v".
const Version = "1.36.3"

// Versions of what is not part of Kubernetes.
const (
	etcdVersion       = "v3.6.16"
	containerdVersion = "v2.2.9"
	coreDNSVersion    = "v1.14.7"
)

//go:embed coredns.txt
var coreDNSMain string

// module is a Go module to build programs from.
type module struct {
	// name is that of its part of the cache.
	name string
	// path and version are the module's.
	path, version string
	// staging is the version of the modules that Kubernetes' go.mod looks for in directories of its repository.
	staging string
	// programs are built by one call each of `go build` and, where test is set, `go test -c`.
	programs []program
	// tags and flags are the build's.
	tags, linker string
	// main is the source of a program that the module itself does not have.
	main string
}

// program is one binary.
type program struct {
	pkg string
	// test is set for binaries of tests.
	test bool
}

// name is what the binary is called.
func (p program) name() string {
	name := path.Base(p.pkg)
	switch {
	case p.test:
		return name + ".test"
	case name == "v3": // the last element of a path may be a version
		return path.Base(path.Dir(path.Dir(p.pkg)))
	case p.pkg == ".":
		return "coredns"
	}
	return name
}

// recipe is everything that decides what comes out, apart from Go itself: a binary of another Go is as good.
func (m module) recipe(p program) string {
	return fmt.Sprintf("%s@%s %s test=%t tags=%s compiler=%s linker=%s staging=%s\n%s",
		m.path, m.version, p.pkg, p.test, m.tags, compiler, m.linker, m.staging, m.main)
}

// queues are the modules for a version of Kubernetes ("1.36.3"), in two rows that are built side by side. No two
// modules of different rows have much in common, so nothing is compiled twice.
func queues(kubernetes string) [][]module {
	etcd := module{
		name: "etcd-" + etcdVersion[1:], path: "go.etcd.io/etcd/server/v3", version: etcdVersion,
		programs: []program{{pkg: "go.etcd.io/etcd/server/v3"}},
		linker:   stripped,
	}
	containerd := module{
		name: "containerd-" + containerdVersion[1:], path: "github.com/containerd/containerd/v2", version: containerdVersion,
		programs: []program{
			{pkg: "github.com/containerd/containerd/v2/cmd/containerd"},
			{pkg: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
			{pkg: "github.com/containerd/containerd/v2/cmd/ctr"},
		},
		tags:   "no_btrfs,no_zfs,no_aufs,no_devmapper",
		linker: stripped + " -X github.com/containerd/containerd/v2/version.Version=" + containerdVersion[1:],
	}
	coredns := module{
		name: "coredns-" + coreDNSVersion[1:], path: "github.com/coredns/coredns", version: coreDNSVersion,
		programs: []program{{pkg: "."}},
		linker:   stripped,
		main:     coreDNSMain,
	}
	return [][]module{{kubernetesModule(kubernetes)}, {etcd, containerd, coredns}}
}

// stripped leaves out of the binaries what debuggers need, and compiler does not make it in the first place, which
// saves a seventh of the time and a quarter of Go's build cache.
const (
	stripped = "-s -w"
	compiler = "all=-dwarf=false"
)

func kubernetesModule(version string) module {
	minor := strings.TrimPrefix(version, "1.")
	linker := stripped
	number, _, _ := strings.Cut(minor, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		linker += fmt.Sprintf(" -X %[1]s.gitVersion=v%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=archive", pkg, version, number)
	}
	m := module{
		name: "kubernetes-" + version, path: "k8s.io/kubernetes", version: "v" + version, staging: "v0." + minor,
		linker: linker,
	}
	for _, command := range []string{"kubectl", "kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		m.programs = append(m.programs, program{pkg: "k8s.io/kubernetes/cmd/" + command})
	}
	m.programs = append(m.programs,
		program{pkg: "k8s.io/kubernetes/test/images/agnhost"},
		program{pkg: "k8s.io/kubernetes/test/images/regression-issue-74839"},
		program{pkg: "github.com/onsi/ginkgo/v2/ginkgo"},
		program{pkg: "k8s.io/kubernetes/test/e2e", test: true})
	return m
}
