package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// connectTime is the connect timeout.
const connectTime = 5 * time.Second

// ask asks servers for their names, over a new connection each time, and prints the replies, one a line.
func ask(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	count := flags.Int("count", 1, "how many times to ask each")
	patience := flags.Duration("patience", answerTime, "how long an answer may take")
	addresses, err := parse(flags, args)
	if err != nil {
		return err
	}
	// The kernels make the connection without scheduling a process.
	dialer := net.Dialer{Timeout: min(connectTime, *patience)}
	client := &http.Client{
		Timeout:   *patience,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
	}
	for _, address := range addresses {
		for i := range *count {
			var said answer
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
			if err == nil {
				err = get(client, request, &said)
			}
			if err != nil {
				return fmt.Errorf("request %d of %d: %w", i+1, *count, err)
			}
			if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
				return err
			}
		}
	}
	return nil
}

// get gets a JSON object.
func get(client *http.Client, request *http.Request, into any) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
