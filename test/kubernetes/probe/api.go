package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"
)

// api gets the version of the API server, as this pod's service account, and prints it.
func api(ctx context.Context, _ []string) error {
	account := os.DirFS("/var/run/secrets/kubernetes.io/serviceaccount")
	token, tokenErr := fs.ReadFile(account, "token")
	authority, err := fs.ReadFile(account, "ca.crt")
	if err := errors.Join(err, tokenErr); err != nil {
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
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	var version struct{ GitVersion string }
	if err := get(client, request, &version); err != nil {
		return err
	}
	fmt.Println(version.GitVersion)
	return nil
}
