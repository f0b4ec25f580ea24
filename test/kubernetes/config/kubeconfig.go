package config

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/test/kubernetes/pki"
)

// kubeconfig is a kubeconfig file.
func kubeconfig(server string, authority []byte, client pki.Pair) ([]byte, error) {
	const name = "beeline"
	type object = map[string]any
	out, err := yaml.Marshal(object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []object{{"name": name, "cluster": object{
			"server":                     server,
			"certificate-authority-data": authority,
		}}},
		"users": []object{{"name": name, "user": object{
			"client-certificate-data": client.Certificate,
			"client-key-data":         client.Key,
		}}},
		"contexts":        []object{{"name": name, "context": object{"cluster": name, "user": name}}},
		"current-context": name,
	})
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return out, nil
}
