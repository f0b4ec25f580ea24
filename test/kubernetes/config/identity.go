package config

import (
	"encoding/base64"
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
func NewIdentities(c plan.Cluster) *Identities {
	return &Identities{
		cluster:   c,
		authority: pki.NewAuthority("kubernetes"),
		// A separate authority: a client with another certificate of the cluster must not act for other users.
		frontProxy: pki.NewAuthority("front-proxy"),
		signingKey: pki.SigningKey(),
	}
}

// kubeconfig makes the kubeconfig of a user.
func (i *Identities) kubeconfig(user string, groups ...string) []byte {
	client := i.authority.Client(user, groups...)
	encode := base64.StdEncoding.EncodeToString
	return render("kubeconfig.yaml", map[string]any{
		"Server": i.cluster.APIServer(), "Authority": encode(i.authority.Certificate),
		"Certificate": encode(client.Certificate), "Key": encode(client.Key)})
}

// Administrator returns the kubeconfig of a cluster administrator.
func (i *Identities) Administrator() []byte {
	return i.kubeconfig("kubernetes-admin", "system:masters")
}

// Files returns the files of a machine's components.
func (i *Identities) Files(m plan.Machine) Files {
	if m.IsNode() {
		return i.nodeFiles(m)
	}
	return i.controlPlaneFiles()
}

// controlPlaneFiles returns the files of the control plane's components.
func (i *Identities) controlPlaneFiles() Files {
	addresses := append(i.cluster.ControlPlane.Addresses(), netip.MustParseAddr("127.0.0.1"))
	addresses = append(addresses, i.cluster.APIServiceIPs()...)
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + plan.Domain, "localhost"}
	f := Files{
		"services.sh": controlPlaneServices(i.cluster),
		"ca.crt":      i.authority.Certificate, "ca.key": i.authority.Key,
		"front-proxy-ca.crt": i.frontProxy.Certificate, "service-accounts.key": i.signingKey,
		"kube-controller-manager.kubeconfig": i.kubeconfig("system:kube-controller-manager"),
		"kube-scheduler.kubeconfig":          i.kubeconfig("system:kube-scheduler"),
	}
	f.pair("apiserver", i.authority.Server("kube-apiserver", names, addresses))
	f.pair("kubelet-client", i.authority.Client("kube-apiserver-kubelet-client", "system:masters"))
	f.pair("front-proxy-client", i.frontProxy.Client("front-proxy-client"))
	return f
}

// notReadyTaint is the taint with which kubelets register nodes, and which Beeline's agent removes, see docs/upgrade.md.
const notReadyTaint = "node.beeline-cni.github.io/agent-not-ready"

// nodeFiles returns the files of a node's components.
func (i *Identities) nodeFiles(m plan.Machine) Files {
	dir := plan.Dir(m.Name)
	taint := ""
	if i.cluster.Options.Network == plan.NetworkBeeline {
		taint = notReadyTaint
	}
	f := Files{
		"services.sh":        nodeServices(i.cluster, m),
		"ca.crt":             i.authority.Certificate,
		"kubelet.kubeconfig": i.kubeconfig("system:node:"+m.Name, "system:nodes"),
		"kubelet.yaml":       render("kubelet.yaml", map[string]any{"Dir": dir, "DNS": i.cluster.DNSServiceIP(), "Domain": plan.Domain, "Taint": taint}),
		"containerd.toml":    render("containerd.toml", map[string]any{"Pause": PauseImage}),
	}
	f.pair("kubelet-server", i.authority.Server(m.Name, []string{m.Name}, m.Addresses()))
	if i.cluster.Options.Proxy != plan.ProxyNone {
		f["kube-proxy.yaml"] = render("kube-proxy.yaml", map[string]any{
			"Dir": dir, "Node": m.Name, "Mode": i.cluster.Options.Proxy, "PodRanges": i.cluster.PodRanges()})
		f["kube-proxy.kubeconfig"] = i.kubeconfig("system:kube-proxy")
	}
	return f
}
