package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// etcd is private to the control plane's network namespace, so it needs no certificates.
const etcdURL = "http://127.0.0.1:2379"

// service is a program that a machine keeps running.
type service struct {
	// Name is also the name of its log.
	Name string
	// Args are the program, found in PATH, and its arguments.
	Args []string
	// After lists files: the service waits until they exist.
	After []string
}

// script is services.sh, see machine/boot.sh.
func script(services []service) []byte {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "keep %s '%s'", s.Name, strings.Join(s.After, " "))
		for _, a := range s.Args {
			b.WriteString(" '" + a + "'") // no argument has a quote
		}
		b.WriteString(" &\n")
	}
	return []byte(b.String())
}

// APIServerReady is the file on a machine that exists once the API server has been ready. Services of the machine that
// need it wait, because their own attempts become rare.
func APIServerReady(machine string) string {
	return filepath.Join(plan.Dir(machine), "api-server-ready")
}

// ImagesLoaded is the file on a node's disk that exists when containerd has the essential images. The kubelet waits for
// it, because it cannot pull them.
const ImagesLoaded = "/var/lib/beeline-images-loaded"

// ContainerdSocket is the socket of a node's containerd.
const ContainerdSocket = "/run/containerd/containerd.sock"

// controlPlaneServices are the components of the control plane.
func controlPlaneServices(c plan.Cluster) []service {
	dir := plan.Dir(plan.ControlPlane)
	file := func(name string) string { return filepath.Join(dir, name) }
	ready := []string{APIServerReady(plan.ControlPlane)}
	address := c.ControlPlane.Addresses()[0].String()
	return []service{
		{
			Name: "etcd",
			// The data need not outlive the cluster.
			Args: []string{"etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL, "--listen-peer-urls=http://127.0.0.1:2380"},
		},
		{
			Name:  "kube-apiserver",
			After: []string{"/var/lib/etcd/member"},
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

// nodeServices are the components of a node.
func nodeServices(c plan.Cluster, m plan.Machine) []service {
	dir := plan.Dir(m.Name)
	ready := APIServerReady(m.Name)
	services := []service{
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
		services = append(services, service{
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
