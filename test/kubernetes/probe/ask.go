package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// connectTime is the connect timeout.
const connectTime = 5 * time.Second

// ask asks servers for their names, over a new connection each time, and prints the replies, one a line.
func ask(ctx context.Context, args []string) error {
	addresses := args
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }); i >= 0 {
		addresses = args[:i]
	}
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	count := flags.Int("count", 1, "how many times to ask each")
	patience := flags.Duration("patience", answerTime, "how long an answer may take")
	if err := flags.Parse(args[len(addresses):]); err != nil {
		return err
	}
	if len(addresses) == 0 {
		return errors.New("ask: an address is needed")
	}
	// The kernels make the connection without scheduling a process.
	dialer := net.Dialer{Timeout: min(connectTime, *patience)}
	client := &http.Client{
		Timeout:   *patience,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
	}
	for _, address := range addresses {
		for i := range *count {
			said, err := askOnce(ctx, client, "http://"+address+"/")
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

func askOnce(ctx context.Context, client *http.Client, url string) (said answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return said, err
	}
	response, err := client.Do(request)
	if err != nil {
		return said, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return said, fmt.Errorf("%s answers %s", url, response.Status)
	}
	err = json.NewDecoder(response.Body).Decode(&said)
	return said, err
}
