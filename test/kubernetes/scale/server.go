package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/test/kubernetes/pki"
)

// server is etcd and an API server, with one user that has all permissions.
type server struct {
	o *options
	// kubeconfig is the agent's, through the proxy.
	kubeconfig string
	proxy      *proxy

	mu sync.Mutex
	// answers are the latencies of writes.
	answers []time.Duration
}

const (
	serverAt  = "127.0.0.1:6443"
	serverURL = "https://" + serverAt
	etcdURL   = "http://127.0.0.1:2379"
	token     = "of-this-measurement-only"
)

// startServer starts both, with all objects.
func startServer(ctx context.Context, o *options) (*server, error) {
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(o.dir, name) }
	between, err := startProxy(ctx, o)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"tokens":     token + ",admin,1,system:masters\n",
		"key":        string(pki.SigningKey()),
		"kubeconfig": fmt.Sprintf(kubeconfig, between.url(), token),
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
		// The API server of a cluster runs on another machine: a low priority keeps it from delaying the agent.
		cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", path}, args...)...)
		cmd.Stdout, cmd.Stderr = log, log
		return o.node.Start(cmd) // ends with the lab
	}
	if err := start("etcd", "--data-dir", at("etcd"), "--unsafe-no-fsync", "--quota-backend-bytes", "8589934592",
		"--max-txn-ops", fmt.Sprint(batch), "--max-request-bytes", "33554432", "--snapshot-count", "1000"); err != nil {
		return nil, err
	}
	if err := waitFor(ctx, time.Minute, func() error { return o.put(ctx, nil) }); err != nil {
		return nil, fmt.Errorf("wait for etcd: %w\n%s", err, tail(at("etcd.log")))
	}
	begin := time.Now()
	count, err := fill(ctx, o)
	if err != nil {
		return nil, err
	}
	o.say("%d objects written in %.0f s", count, time.Since(begin).Seconds())
	if err := start("kube-apiserver",
		"--etcd-servers", etcdURL, "--bind-address", "127.0.0.1", "--advertise-address", nodeAddress(0).String(), "--secure-port", "6443", "--cert-dir", at("certificates"),
		"--token-auth-file", at("tokens"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/12",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", at("key"), "--service-account-signing-key-file", at("key"),
		"--disable-admission-plugins", "ServiceAccount", "--max-requests-inflight", "0", "--max-mutating-requests-inflight", "0",
		"--enable-priority-and-fairness=false"); err != nil {
		return nil, err
	}
	s := &server{o: o, kubeconfig: at("kubeconfig"), proxy: between}
	if err := waitFor(ctx, 8*time.Minute, func() error { return s.send(ctx, http.MethodGet, "/readyz", nil) }); err != nil {
		return nil, fmt.Errorf("wait for the API server: %w\n%s", err, tail(at("kube-apiserver.log")))
	}
	o.say("the API server is ready")
	return s, nil
}

// tail returns the end of a log.
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
	_, err := s.ask(ctx, method, path, body)
	return err
}

// ask is send with the response.
func (s *server) ask(ctx context.Context, method, path string, body object) (answer []byte, err error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, serverURL+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	begin := time.Now()
	response, err := s.o.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if method != http.MethodGet {
		s.mu.Lock()
		s.answers = append(s.answers, time.Since(begin))
		s.mu.Unlock()
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, answer)
	}
	return answer, nil
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
