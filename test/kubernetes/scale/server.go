package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/binaries"
)

// server is etcd and an API server, with one user who may do everything.
type server struct {
	client     *http.Client
	kubeconfig string
}

const (
	serverURL = "https://127.0.0.1:6443"
	token     = "of-this-measurement-only"
)

func startServer(ctx context.Context, o options) (*server, error) {
	cache, err := binaries.OpenCache()
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(o.dir, name) }
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"tokens":     token + ",admin,1,system:masters\n",
		"key":        string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"kubeconfig": fmt.Sprintf(kubeconfig, serverURL, token),
	}
	for name, text := range files {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	start := func(program string, args ...string) error {
		path, err := cache.Path(o.kubernetes, program)
		if err != nil {
			return err
		}
		log, err := os.Create(at(program + ".log"))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdout, cmd.Stderr = log, log
		return cmd.Start() // ends with the process namespace
	}
	if err := start("etcd", "--data-dir", at("etcd"), "--unsafe-no-fsync", "--quota-backend-bytes", "4294967296"); err != nil {
		return nil, err
	}
	if err := start("kube-apiserver",
		"--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "127.0.0.1", "--advertise-address", nodeAddress(0).String(), "--secure-port", "6443", "--cert-dir", at("certificates"),
		"--token-auth-file", at("tokens"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", at("key"), "--service-account-signing-key-file", at("key"),
		"--disable-admission-plugins", "ServiceAccount", "--max-requests-inflight", "0", "--max-mutating-requests-inflight", "0",
		"--enable-priority-and-fairness=false"); err != nil {
		return nil, err
	}
	s := &server{kubeconfig: at("kubeconfig"), client: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // on the loopback of this namespace there is nobody else
		MaxIdleConnsPerHost: 16,
	}}}
	if err := waitFor(ctx, time.Minute, func() error { return s.send(ctx, http.MethodGet, "/readyz", nil) }); err != nil {
		return nil, fmt.Errorf("wait for the API server: %w\n%s", err, tail(at("kube-apiserver.log")))
	}
	return s, nil
}

// tail gives the end of a log.
func tail(file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-2000):]
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: scale, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: scale, context: {cluster: scale, user: admin}}]
current-context: scale
`

// send makes a request and expects it to succeed.
func (s *server) send(ctx context.Context, method, path string, body object) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, serverURL+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, answer)
	}
	return nil
}

// waitFor tries until it succeeds.
func waitFor(ctx context.Context, limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("after %s: %w", limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
