package config

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

var dual = plan.New(plan.Options{Family: plan.FamilyDual, Proxy: plan.ProxyNFTables}.Defaults())

// TestServicesFindTheirFiles checks that each file in the machine's directory that an argument or another file names is
// written.
func TestServicesFindTheirFiles(t *testing.T) {
	i := NewIdentities(dual)
	control := i.controlPlaneFiles()
	node := i.nodeFiles(dual.Nodes[0])
	for name, files := range map[string]Files{plan.ControlPlane: control, "n1": node} {
		texts := string(files["services.sh"]) + string(files["kubelet.yaml"]) + string(files["kube-proxy.yaml"])
		texts = strings.ReplaceAll(texts, "$dir/", plan.Dir(name)+"/")
		named := 0
		for word := range strings.FieldsFuncSeq(texts, func(r rune) bool { return strings.ContainsRune(" =,{}\n", r) }) {
			file, ok := strings.CutPrefix(strings.Trim(word, "'"), plan.Dir(name)+"/")
			if !ok || file == filepath.Base(APIServerReady(name)) {
				continue
			}
			named++
			if _, ok := files[file]; !ok {
				t.Errorf("%s: %s is named but not written", name, file)
			}
		}
		if named == 0 {
			t.Errorf("%s: no file is named", name)
		}
	}
}

func TestNoKubeProxyWhereNoneIsWanted(t *testing.T) {
	c := plan.New(plan.Options{}.Defaults())
	if strings.Contains(string(nodeServices(c, c.Nodes[0])), "kube-proxy") {
		t.Error("kube-proxy is started")
	}
	i := NewIdentities(c)
	files := i.nodeFiles(c.Nodes[0])
	for name := range files {
		if strings.HasPrefix(name, "kube-proxy") {
			t.Errorf("the node has %s", name)
		}
	}
}

func TestNodeFilesSayWhatWasChosen(t *testing.T) {
	files := NewIdentities(dual).nodeFiles(dual.Nodes[1])
	var proxy struct{ Mode, ClusterCIDR, HostnameOverride string }
	if err := yaml.Unmarshal(files["kube-proxy.yaml"], &proxy); err != nil {
		t.Fatal(err)
	}
	if proxy.Mode != "nftables" || proxy.ClusterCIDR != "10.244.0.0/16,fd00:244::/48" || proxy.HostnameOverride != "n2" {
		t.Errorf("kube-proxy: %+v", proxy)
	}
	var kubelet struct {
		ClusterDNS []string
		FailSwapOn bool
	}
	if err := yaml.Unmarshal(files["kubelet.yaml"], &kubelet); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kubelet.ClusterDNS, []string{"10.96.0.10"}) {
		t.Errorf("kubelet: %+v", kubelet)
	}
	block, _ := pem.Decode(files["kubelet-server.crt"])
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n2", "192.168.60.12", "fd00:60::12"} {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingOfIPv4 checks an IPv6-only cluster: no component gets an IPv4 address.
func TestNothingOfIPv4(t *testing.T) {
	six := plan.New(plan.Options{Family: plan.FamilyIPv6, Proxy: plan.ProxyNFTables}.Defaults())
	i := NewIdentities(six)
	files := i.nodeFiles(six.Nodes[0])
	all := string(files["kubelet.yaml"]) + string(files["kube-proxy.yaml"]) + string(files["kubelet.kubeconfig"]) + string(CoreDNS(six))
	all += string(controlPlaneServices(six)) + string(nodeServices(six, six.Nodes[0]))
	for _, want := range []string{
		"server: https://[fd00:60::1]:6443", `clusterDNS: ["fd00:96::a"]`, `clusterIP: "fd00:96::a"`, "clusterCIDR: fd00:244::/48\n",
		"--advertise-address=fd00:60::1 ", "--node-ip=fd00:60::11", "--cluster-cidr=fd00:244::/48 ", "--service-cluster-ip-range=fd00:96::/112 ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in:\n%s", want, all)
		}
	}
	for _, wrong := range []string{"192.168.", "10.244.", "10.96."} {
		if strings.Contains(all, wrong) {
			t.Errorf("%q in:\n%s", wrong, all)
		}
	}
}

// TestKubeconfig checks the identities of the clients.
func TestKubeconfig(t *testing.T) {
	files := NewIdentities(dual).nodeFiles(dual.Nodes[0])
	var k struct {
		Clusters []struct{ Cluster struct{ Server string } }
		Users    []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
			}
		}
	}
	if err := yaml.Unmarshal(files["kubelet.kubeconfig"], &k); err != nil {
		t.Fatal(err)
	}
	if k.Clusters[0].Cluster.Server != dual.APIServer() {
		t.Errorf("server %s", k.Clusters[0].Cluster.Server)
	}
	block, _ := pem.Decode(k.Users[0].User.Certificate)
	if block == nil {
		t.Fatal("no certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if s := certificate.Subject; s.CommonName != "system:node:n1" || !slices.Equal(s.Organization, []string{"system:nodes"}) {
		t.Errorf("subject %s", s)
	}
}

func TestBridgeNetwork(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:244:0:3::/64")}
	var conflist struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	if err := json.Unmarshal(BridgeNetwork(ranges), &conflist); err != nil {
		t.Fatal(err)
	}
	ipam := conflist.Plugins[0].IPAM
	if len(ipam.Ranges) != 2 || ipam.Ranges[1][0].Subnet != "fd00:244:0:3::/64" || len(ipam.Routes) != 2 || ipam.Routes[1].Dst != "::/0" {
		t.Errorf("ipam: %+v", ipam)
	}
	if len(conflist.Plugins) != 2 || conflist.Plugins[1].Type != "portmap" {
		t.Errorf("plugins: %+v", conflist.Plugins)
	}
}

func TestCoreDNSIsYAML(t *testing.T) {
	for _, c := range []plan.Cluster{dual, plan.New(plan.Options{Nodes: 1}.Defaults())} {
		var kinds []string
		for document := range strings.SplitSeq(string(CoreDNS(c)), "\n---\n") {
			var object struct{ Kind string }
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, object.Kind)
		}
		if !slices.Contains(kinds, "Deployment") || !slices.Contains(kinds, "Service") {
			t.Errorf("kinds %v", kinds)
		}
	}
}

// TestPoolsAreValid reads the manifest as Beeline does with manifests.
func TestPoolsAreValid(t *testing.T) {
	for _, pools := range plan.AllPools {
		c := plan.New(plan.Options{Family: plan.FamilyDual, Pools: pools}.Defaults())
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), Pools(c), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		ctx, stop := context.WithCancel(t.Context())
		manifests := cluster.NewManifests(dir, slog.New(slog.DiscardHandler))
		err := manifests.Run(ctx, func(s *cluster.Snapshot) {
			for _, p := range s.IPPools {
				got = append(got, fmt.Sprint(p.Name, p.Invalid, p.Subnets, p.Ranges, p.Device, p.Default, p.NamespaceMax))
			}
			stop()
		})
		var want []string
		for _, p := range c.Pools() {
			want = append(want, fmt.Sprint(p.Name, "", p.Subnets, p.Ranges, p.Device, p.Default, p.NamespaceMax))
		}
		if !slices.Equal(got, want) || len(manifests.Problems()) > 0 {
			t.Errorf("pools %s: %q, want %q (%v, %v)", pools, got, want, manifests.Problems(), err)
		}
	}
}

func TestFilesAreForRootOnly(t *testing.T) {
	dir := t.TempDir()
	if err := (Files{"sub/secret.key": []byte("x")}).Write(dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "sub/secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// With Beeline, nodes have a taint until the agent is ready. With other networks, nothing would remove it.
func TestNodesWaitForTheirAgent(t *testing.T) {
	for _, network := range plan.Networks {
		i := NewIdentities(plan.New(plan.Options{Network: network}.Defaults()))
		files := i.nodeFiles(i.cluster.Nodes[0])
		var kubelet struct{ RegisterWithTaints []corev1.Taint }
		if err := yaml.Unmarshal(files["kubelet.yaml"], &kubelet); err != nil {
			t.Fatal(err)
		}
		var want []corev1.Taint
		if network == plan.NetworkBeeline {
			want = []corev1.Taint{{Key: apiserver.NotReadyTaint, Effect: corev1.TaintEffectNoSchedule}}
		}
		if !slices.Equal(kubelet.RegisterWithTaints, want) {
			t.Errorf("network %s: nodes register with %v, want %v", network, kubelet.RegisterWithTaints, want)
		}
	}
}
