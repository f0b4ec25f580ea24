package config

import (
	"fmt"
	"net/netip"

	"github.com/beeline-cni/beeline/test/kubernetes/pki"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// Identities are the certificate authorities of a cluster.
type Identities struct {
	cluster    plan.Cluster
	authority  *pki.Authority
	frontProxy *pki.Authority
	signingKey []byte
}

// NewIdentities makes the certificate authorities of a cluster.
func NewIdentities(c plan.Cluster) (*Identities, error) {
	authority, err := pki.NewAuthority("kubernetes")
	if err != nil {
		return nil, err
	}
	// A separate authority: a client with another certificate of the cluster must not act for other users.
	frontProxy, err := pki.NewAuthority("front-proxy")
	if err != nil {
		return nil, err
	}
	key, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}
	return &Identities{cluster: c, authority: authority, frontProxy: frontProxy, signingKey: key}, nil
}

// client makes a kubeconfig for a user.
func (i *Identities) client(user string, groups ...string) ([]byte, error) {
	pair, err := i.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return kubeconfig(i.cluster.APIServer(), i.authority.Certificate, pair)
}

// Administrator returns the kubeconfig of a cluster administrator.
func (i *Identities) Administrator() ([]byte, error) {
	return i.client("kubernetes-admin", "system:masters")
}

// ControlPlaneFiles returns the files of the control plane's components.
func (i *Identities) ControlPlaneFiles() (Files, error) {
	f := Files{"ca.crt": i.authority.Certificate, "ca.key": i.authority.Key,
		"front-proxy-ca.crt": i.frontProxy.Certificate, "service-accounts.key": i.signingKey}
	addresses := append(i.cluster.ControlPlane.Addresses(), netip.MustParseAddr("127.0.0.1"))
	addresses = append(addresses, i.cluster.APIServiceIPs()...)
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + plan.Domain, "localhost"}
	server, err := i.authority.Server("kube-apiserver", names, addresses)
	if err != nil {
		return nil, err
	}
	f.pair("apiserver", server)
	kubelets, err := i.authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	f.pair("kubelet-client", kubelets)
	proxy, err := i.frontProxy.Client("front-proxy-client")
	if err != nil {
		return nil, err
	}
	f.pair("front-proxy-client", proxy)
	for _, component := range []string{"kube-controller-manager", "kube-scheduler"} {
		if f[component+".kubeconfig"], err = i.client("system:" + component); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// notReadyTaint is the taint with which kubelets register nodes, and which Beeline's agent removes, see docs/upgrade.md.
const notReadyTaint = "node.beeline-cni.github.io/agent-not-ready"

// NodeFiles returns the files of a node's components.
func (i *Identities) NodeFiles(m plan.Machine) (Files, error) {
	f := Files{"ca.crt": i.authority.Certificate}
	server, err := i.authority.Server(m.Name, []string{m.Name}, m.Addresses())
	if err != nil {
		return nil, err
	}
	f.pair("kubelet-server", server)
	if f["kubelet.kubeconfig"], err = i.client("system:node:"+m.Name, "system:nodes"); err != nil {
		return nil, fmt.Errorf("make kubeconfig of node %s: %w", m.Name, err)
	}
	dir := plan.Dir(m.Name)
	taint := ""
	if i.cluster.Options.Network == plan.NetworkBeeline {
		taint = notReadyTaint
	}
	f["kubelet.yaml"] = render("kubelet.yaml", map[string]any{"Dir": dir, "DNS": i.cluster.DNSServiceIP(), "Domain": plan.Domain, "Taint": taint})
	f["containerd.toml"] = render("containerd.toml", map[string]any{"Pause": PauseImage})
	if i.cluster.Options.Proxy == plan.ProxyNone {
		return f, nil
	}
	f["kube-proxy.yaml"] = render("kube-proxy.yaml", map[string]any{
		"Dir": dir, "Node": m.Name, "Mode": i.cluster.Options.Proxy, "PodRanges": i.cluster.PodRanges()})
	f["kube-proxy.kubeconfig"], err = i.client("system:kube-proxy")
	return f, err
}
