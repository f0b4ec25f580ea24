package apiserver

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod's service account is used with an explicit URL, and with the account's own CA.
func TestServiceAccountAtAnotherServer(t *testing.T) {
	var authorization string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[]}`))
	}))
	defer server.Close()
	account := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if _, err := accountConfig(account, server.URL); err == nil {
		t.Error("a pod without a service account is no error")
	}
	for name, content := range map[string][]byte{"token": []byte("secret"), "ca.crt": authority} {
		if err := os.WriteFile(filepath.Join(account, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := accountConfig(account, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.clients[corev1.SchemeGroupVersion].Get().Resource("nodes").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if authorization != "Bearer secret" {
		t.Errorf("asks as %q", authorization)
	}
}
