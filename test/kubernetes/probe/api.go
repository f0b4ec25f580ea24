package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// api gets the version of the API server, as this pod's service account, and prints it.
func api(ctx context.Context, _ []string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("no certificate in ca.crt")
	}
	// A host-network pod has the node's resolver: the address of the Service is in the environment.
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), "443")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/version", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	const patience = 10 * time.Second
	client := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var version struct{ GitVersion string }
	if err := json.NewDecoder(response.Body).Decode(&version); err != nil {
		return fmt.Errorf("decode answer %s: %w", response.Status, err)
	}
	fmt.Println(version.GitVersion)
	return nil
}
