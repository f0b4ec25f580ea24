package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// etcd is private to the control plane's network namespace, so it needs no certificates.
const etcdURL = "http://127.0.0.1:2379"

// ImagesLoaded is the file on a node's disk that exists when containerd has the essential images. The kubelet waits for
// it, because it cannot pull them.
const ImagesLoaded = "/var/lib/beeline-images-loaded"

// ContainerdSocket is the socket of a node's containerd.
const ContainerdSocket = "/run/containerd/containerd.sock"

// ControlPlaneServices are the components of the control plane.
func ControlPlaneServices(c plan.Cluster) []machine.Service {
	dir := plan.Dir(plan.ControlPlane)
	file := func(name string) string { return filepath.Join(dir, name) }
	ready := []string{c.APIServer() + "/readyz"}
	address := c.ControlPlane.Addresses()[0].String()
	return []machine.Service{
		{
			Name: "etcd",
			// The data need not outlive the cluster.
			Args: []string{"etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL, "--listen-peer-urls=http://127.0.0.1:2380"},
		},
		{
			Name:  "kube-apiserver",
			After: []string{etcdURL + "/readyz"},
			Args: []string{
				"kube-apiserver",
				"--etcd-servers=" + etcdURL,
				"--advertise-address=" + address,
				fmt.Sprintf("--secure-port=%d", plan.APIServerPort),
				"--allow-privileged",
				"--authorization-mode=Node,RBAC",
				"--enable-admission-plugins=NodeRestriction",
				"--service-cluster-ip-range=" + c.ServiceRanges(),
				"--client-ca-file=" + file("ca.crt"),
				"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"),
				"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
				"--kubelet-certificate-authority=" + file("ca.crt"),
				"--kubelet-preferred-address-types=InternalIP",
				"--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
				"--requestheader-allowed-names=front-proxy-client",
				"--requestheader-extra-headers-prefix=X-Remote-Extra-",
				"--requestheader-group-headers=X-Remote-Group",
				"--requestheader-username-headers=X-Remote-User",
				"--proxy-client-cert-file=" + file("front-proxy-client.crt"), "--proxy-client-key-file=" + file("front-proxy-client.key"),
				"--enable-aggregator-routing", // the control plane has no kube-proxy
				"--service-account-issuer=https://kubernetes.default.svc." + plan.Domain,
				"--service-account-key-file=" + file("service-accounts.key"),
				"--service-account-signing-key-file=" + file("service-accounts.key"),
			},
		},
		{
			Name:  "kube-controller-manager",
			After: ready,
			Args: []string{
				"kube-controller-manager",
				"--kubeconfig=" + file("kube-controller-manager.kubeconfig"),
				"--authentication-kubeconfig=" + file("kube-controller-manager.kubeconfig"),
				"--authorization-kubeconfig=" + file("kube-controller-manager.kubeconfig"),
				"--allocate-node-cidrs",
				"--cluster-cidr=" + c.PodRanges(),
				"--service-cluster-ip-range=" + c.ServiceRanges(),
				"--use-service-account-credentials",
				"--service-account-private-key-file=" + file("service-accounts.key"),
				"--root-ca-file=" + file("ca.crt"),
				"--cluster-signing-cert-file=" + file("ca.crt"), "--cluster-signing-key-file=" + file("ca.key"),
				"--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
				"--leader-elect=false",
			},
		},
		{
			Name:  "kube-scheduler",
			After: ready,
			Args: []string{
				"kube-scheduler",
				"--kubeconfig=" + file("kube-scheduler.kubeconfig"),
				"--authentication-kubeconfig=" + file("kube-scheduler.kubeconfig"),
				"--authorization-kubeconfig=" + file("kube-scheduler.kubeconfig"),
				"--leader-elect=false",
			},
		},
	}
}

// NodeServices are the components of a node.
func NodeServices(c plan.Cluster, m plan.Machine) []machine.Service {
	dir := plan.Dir(m.Name)
	ready := c.APIServer() + "/readyz"
	services := []machine.Service{
		{
			Name: "containerd",
			Args: []string{"containerd", "--config=" + filepath.Join(dir, "containerd.toml")},
		},
		{
			Name:  "kubelet",
			After: []string{ContainerdSocket, ImagesLoaded, ready},
			Args: []string{
				"kubelet",
				"--config=" + filepath.Join(dir, "kubelet.yaml"),
				"--kubeconfig=" + filepath.Join(dir, "kubelet.kubeconfig"),
				"--root-dir=/var/lib/kubelet",
				"--node-ip=" + join(m.Addresses()),
			},
		},
	}
	if c.Options.Proxy != plan.ProxyNone {
		services = append(services, machine.Service{
			Name:  "kube-proxy",
			After: []string{ready},
			Args:  []string{"kube-proxy", "--config=" + filepath.Join(dir, "kube-proxy.yaml")},
		})
	}
	return services
}

func join(addresses []netip.Addr) string {
	var words []string
	for _, a := range addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, ",")
}

// CoreDNS is the manifest of the cluster's name server.
func CoreDNS(c plan.Cluster) []byte {
	return render("coredns.yaml", map[string]any{
		"Domain": plan.Domain, "DNS": c.DNSServiceIP(), "Image": CoreDNSImage, "Replicas": min(2, len(c.Nodes))})
}

// BridgeNetwork is the CNI configuration of a node with these pod CIDRs.
func BridgeNetwork(ranges []netip.Prefix) []byte {
	var defaults []netip.Prefix
	for _, r := range ranges {
		everything, _ := r.Addr().Prefix(0) // every address has that prefix
		defaults = append(defaults, everything)
	}
	return render("bridge.conflist", map[string]any{"Ranges": ranges, "Defaults": defaults})
}
