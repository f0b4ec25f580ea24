// Package config renders the configuration of a cluster's components: their files, certificates and arguments.
package config

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/beeline-cni/beeline/test/kubernetes/pki"
)

//go:embed templates
var templates embed.FS

// Names of the images in the configuration. They have a registry, because otherwise it would be Docker's.
const (
	PauseImage   = "localhost/k8s/pause:3.10.2"
	CoreDNSImage = "localhost/k8s/coredns:1.14.7"
)

// Files are file contents by path, relative to the directory of a machine.
type Files map[string][]byte

// Write writes the files below dir, readable by root only, because of the private keys.
func (f Files) Write(dir string) error {
	for name, content := range f {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pair adds a certificate and its key as name.crt and name.key.
func (f Files) pair(name string, p pki.Pair) {
	f[name+".crt"] = p.Certificate
	f[name+".key"] = p.Key
}

// render executes an embedded template. It panics on an error, which is a bug.
func render(name string, data any) []byte {
	t := template.Must(template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name))
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		panic(fmt.Sprintf("render %s: %v", name, err))
	}
	return []byte(out.String())
}
