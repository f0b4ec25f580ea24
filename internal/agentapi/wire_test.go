package agentapi

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A response that is cut off is one of no agent; a complete one that does not fit the type is not.
func TestBrokenResponses(t *testing.T) {
	for body, noAgent := range map[string]bool{
		``: true, `{"items": [`: true, `{"items": [{"addresses": ["x"]}]}`: false, `{"items": 1}`: false, `}`: false,
	} {
		socket := filepath.Join(t.TempDir(), "agent.sock")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			_, _ = connection.Read(make([]byte, 4096))
			_, _ = io.WriteString(connection, "HTTP/1.0 200 OK\r\n\r\n"+body)
		}()
		into := struct{ Items []Endpoint }{}
		err = NewClient(socket).exchange(context.Background(), "/x", nil, func(decode decoder) error { return decode(&into) })
		if err == nil || errors.Is(err, ErrNoAgent) != noAgent || !noAgent && !strings.Contains(err.Error(), "decode response to /x") {
			t.Errorf("%q: error %v", body, err)
		}
		listener.Close()
	}
}
