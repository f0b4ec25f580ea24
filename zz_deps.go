//go:build tools

package beeline

import (
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/btf"
	_ "github.com/cilium/ebpf/features"
	_ "github.com/cilium/ebpf/link"
	_ "github.com/cilium/ebpf/rlimit"
	_ "github.com/containernetworking/cni/libcni"
	_ "github.com/containernetworking/cni/pkg/skel"
	_ "github.com/containernetworking/plugins/pkg/ns"
	_ "github.com/containernetworking/plugins/pkg/testutils"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/nftables"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netlink/nl"
	_ "github.com/vishvananda/netns"
	_ "golang.org/x/perf/benchfmt"
	_ "golang.org/x/perf/benchmath"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/util/yaml"
	_ "k8s.io/apimachinery/pkg/util/validation"
	_ "sigs.k8s.io/yaml"
	_ "golang.org/x/sys/unix"
	_ "go.yaml.in/yaml/v3"
	_ "sigs.k8s.io/json"
)
