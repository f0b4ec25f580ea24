package httpserve

import (
	"context"
	"net"
	"net/http"
	"testing"
)

// The caller closes what a request uses when Run has returned, so Run must not return before the request is complete.
func TestServeWaitsForRequests(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	entered, leave, returned := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})
	go func() { returned <- Run(ctx, l, handler) }()
	answered := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	<-entered
	cancel()
	for { // until the shutdown has begun
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case err := <-returned:
		t.Errorf("Run returned %v during a request", err)
		returned <- err
	default:
	}
	close(leave)
	if err := <-answered; err != nil {
		t.Errorf("the request was cut off: %v", err)
	}
	if err := <-returned; err != nil {
		t.Error(err)
	}
}
