package apiserver

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestServers(t *testing.T) {
	for list, bad := range map[string]string{
		"https://192.0.2.1:6443":                           "",
		"https://192.0.2.1:6443/clusters/a":                "",
		"https://192.0.2.1:6443, https://[2001:db8::1]":    "",
		"http://192.0.2.1:6443":                            "unencrypted",
		"https://192.0.2.1:6443,http://192.0.2.2:6443":     "unencrypted",
		"192.0.2.1:6443":                                   "not a URL",
		"":                                                 "not a URL",
		"https://192.0.2.1:6443,":                          "not a URL",
		"https://192.0.2.1:6443/a,https://192.0.2.2:6443/": "path",
		"https://me@192.0.2.1":                             "not a URL",
		"ftp://192.0.2.1":                                  "not a URL",
	} {
		all, err := Servers(list)
		if bad == "" && (err != nil || len(all) != 1+strings.Count(list, ",")) || bad != "" && err == nil {
			t.Errorf("%q gives %v, %v; want an error with %q", list, all, err, bad)
		}
		if bad == "unencrypted" && !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", list, err)
		}
	}
	for host, ok := range map[string]bool{
		"https://192.0.2.1": true, "http://127.0.0.1:8080": true, "http://[::1]:8080": true, "localhost:8080": true, "http://192.0.2.1:8080": false, "192.0.2.1:8080": false,
	} {
		if err := checkKubeconfig(host); (err == nil) != ok {
			t.Errorf("kubeconfig with server %q: %v", host, err)
		}
	}
}

// With several servers, an unreachable one is left for the next, also by writes, and the reachable one is kept.
func TestFailover(t *testing.T) {
	var asked []string
	start := func(name string) *httptest.Server {
		return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, strings.TrimSpace(name+" "+r.Method+" "+string(body)))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[]}`))
		}))
	}
	a, b := start("a"), start("b")
	defer b.Close()
	account := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	for name, content := range map[string][]byte{"token": []byte("secret"), "ca.crt": authority} {
		if err := os.WriteFile(filepath.Join(account, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := accountConfig(account, a.URL+","+b.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(config)
	if err != nil {
		t.Fatal(err)
	}
	client := c.clients[corev1.SchemeGroupVersion]
	list := func() {
		t.Helper()
		if err := client.Get().Resource("nodes").Do(t.Context()).Error(); err != nil {
			t.Error(err)
		}
	}
	list()
	a.CloseClientConnections()
	a.Close()
	if err := client.Post().Resource("events").Body([]byte("{1}")).Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	list()
	if want := []string{"a GET", "b POST {1}", "b GET"}; !slices.Equal(asked, want) {
		t.Errorf("requests went to %q, want %q", asked, want)
	}
	b.CloseClientConnections()
	b.Close()
	if err := client.Get().Resource("nodes").Do(t.Context()).Error(); err == nil || isAnswer(err) {
		t.Errorf("with neither: %v", err)
	}
}
