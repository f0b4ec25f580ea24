package testbed

import (
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/test/kubernetes/config"
	"github.com/beeline-cni/beeline/test/kubernetes/images"
	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// configure writes the files that machines read.
func (b *Testbed) configure(p Parts) error {
	if err := file.Copy(plan.BootProgram, p.Boot, 0o755); err != nil {
		return err
	}
	identities := config.NewIdentities(b.Cluster)
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for _, m := range b.Cluster.Machines() {
		for _, address := range m.Addresses() {
			hosts += address.String() + " " + m.Name + "\n"
		}
	}
	for _, m := range b.Cluster.Machines() {
		spec := machine.Spec{Name: m.Name, Binaries: b.binaries}
		var files config.Files
		if m.IsNode() {
			spec.Services = config.NodeServices(b.Cluster, m)
			files = identities.NodeFiles(m)
		} else {
			spec.Services = config.ControlPlaneServices(b.Cluster)
			files = identities.ControlPlaneFiles()
		}
		files["hosts"] = []byte(hosts)
		if err := spec.Write(); err != nil {
			return err
		}
		if err := files.Write(plan.Dir(m.Name)); err != nil {
			return err
		}
	}
	return b.writeAccess(identities)
}

// repositoryList is the value of KUBE_TEST_REPO_LIST.
const repositoryList = plan.RunDir + "/repositories.yaml"

// writeAccess writes the files for users of the cluster.
func (b *Testbed) writeAccess(identities *config.Identities) error {
	files := config.Files{
		filepath.Base(plan.Kubeconfig): identities.Administrator(),
		filepath.Base(repositoryList):  []byte(images.RepositoryList),
	}
	return files.Write(plan.RunDir)
}
