package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// resolve queries a DNS server for the addresses of a name, of both families, and prints them, sorted, on one line.
func resolve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("resolve", flag.ContinueOnError)
	protocol := flags.String("protocol", "udp", "udp or tcp")
	server := flags.String("server", "", "`address` of the server; that of /etc/resolv.conf unless given")
	names, err := parse(flags, args)
	if err != nil {
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
	addresses, err := resolver.LookupHost(ctx, names[0])
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	fmt.Println(strings.Join(addresses, " "))
	return nil
}
