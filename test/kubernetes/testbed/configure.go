package testbed

import (
	"path/filepath"

	"github.com/beeline-cni/beeline/test/kubernetes/config"
	"github.com/beeline-cni/beeline/test/kubernetes/images"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// configure writes the files that machines read.
func (b *Testbed) configure() error {
	identities := config.NewIdentities(b.Cluster)
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for _, m := range b.Cluster.Machines() {
		for _, address := range m.Addresses() {
			hosts += address.String() + " " + m.Name + "\n"
		}
	}
	for _, m := range b.Cluster.Machines() {
		files := identities.Files(m)
		files["hosts"] = []byte(hosts)
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
