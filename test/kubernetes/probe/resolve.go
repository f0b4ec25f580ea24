package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// resolve queries a DNS server for the addresses of a name, of both families, and prints them, sorted, on one line.
func resolve(ctx context.Context, args []string) error {
	if len(args) < 1 {
		return errors.New("resolve: a name is needed")
	}
	flags := flag.NewFlagSet("resolve", flag.ContinueOnError)
	protocol := flags.String("protocol", "udp", "udp or tcp")
	server := flags.String("server", "", "`address` of the server; that of /etc/resolv.conf unless given")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, configured string) (net.Conn, error) {
		if *server != "" {
			configured = net.JoinHostPort(*server, "53")
		}
		return (&net.Dialer{}).DialContext(ctx, *protocol, configured)
	}}
	addresses, err := resolver.LookupNetIP(ctx, "ip", args[0])
	if err != nil {
		return err
	}
	var found []string
	for _, a := range addresses {
		found = append(found, a.Unmap().String())
	}
	slices.Sort(found)
	fmt.Println(strings.Join(found, " "))
	return nil
}
