package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newServicesCommand(e cli.Env) *cobra.Command {
	var which agentapi.ServiceFilter
	cmd := newListCommand(e, "services [NAME]", "List Services with their frontends; with a name, their backends too",
		func(c *agentapi.Client, ctx context.Context) ([]agentapi.ServicePort, error) {
			all, err := c.Services(ctx, which)
			return oneOrMore(all, err, "Service", which.Namespace, which.Name, " on this node")
		},
		func(w io.Writer, all []agentapi.ServicePort, wide bool) error {
			return printServices(w, all, which, wide)
		},
		func(p agentapi.ServicePort) string {
			if !slices.ContainsFunc(p.Frontends, func(f agentapi.Frontend) bool { return f.Kind != "HostPort" }) {
				return "pod/" + p.Name
			}
			return "service/" + p.Name
		})
	return byName(cmd, "Services", &which.Namespace, &which.Name)
}

func printServices(w io.Writer, all []agentapi.ServicePort, which agentapi.ServiceFilter, wide bool) error {
	if len(all) == 0 {
		of := ""
		if which.Namespace != "" {
			of = " in namespace " + which.Namespace
		}
		fmt.Fprintf(w, "No Services%s on this node.\n", of)
		return nil
	}
	if which.Name != "" {
		for i, p := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := printService(w, p); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{{"SERVICE", "PORT", "TYPE", "FRONTEND", "INTERNAL", "EXTERNAL", "OPTIONS", "CONNECTIONS", "REJECTED"}}
	for _, p := range all {
		for i, f := range p.Frontends {
			row := []string{"", "", f.Kind, netip.AddrPortFrom(f.Address, f.Port).String(), side(f.Internal), side(f.External), more(p, f), "", ""}
			if i == 0 { // more frontends of the same port
				row[0], row[1] = p.Namespace+"/"+p.Name, portLabel(p)
				row[7], row[8] = fmt.Sprint(p.Connections), fmt.Sprint(p.Rejected)
			}
			rows = append(rows, row)
		}
	}
	return printTable(w, rows, wide, "OPTIONS")
}

// printService prints one port with its frontends and backends.
func printService(w io.Writer, p agentapi.ServicePort) error {
	fmt.Fprintf(w, "%s/%s, port %s: %d connections, %d rejected\n", p.Namespace, p.Name, portLabel(p), p.Connections, p.Rejected)
	rows := [][]string{{"  TYPE", "FRONTEND", "INTERNAL", "EXTERNAL", "OPTIONS"}}
	for _, f := range p.Frontends {
		rows = append(rows, []string{"  " + f.Kind, netip.AddrPortFrom(f.Address, f.Port).String(), side(f.Internal), side(f.External), more(p, f)})
	}
	if err := cli.Table(w, rows); err != nil {
		return err
	}
	if len(p.Backends) == 0 {
		fmt.Fprintln(w, "  no backends")
		return nil
	}
	rows = [][]string{{"  BACKEND", "STATE", "NODE", "ZONE", "USED FOR"}}
	for _, b := range p.Backends {
		node := dash(b.Node)
		if b.Local {
			node += " (local)"
		}
		rows = append(rows, []string{"  " + b.Address.String(), b.State(), node, dash(b.Zone), receives(p, b)})
	}
	return cli.Table(w, rows)
}

// receives lists the traffic whose new connections a backend gets on this node: internal, external.
func receives(p agentapi.ServicePort, b agentapi.Backend) string {
	var from []string
	for _, s := range []struct {
		name string
		of   func(agentapi.Frontend) agentapi.ServiceSide
	}{
		{"internal", func(f agentapi.Frontend) agentapi.ServiceSide { return f.Internal }},
		{"external", func(f agentapi.Frontend) agentapi.ServiceSide { return f.External }},
	} {
		if slices.ContainsFunc(p.Frontends, func(f agentapi.Frontend) bool { return slices.Contains(s.of(f).Backends, b.Address) }) {
			from = append(from, s.name)
		}
	}
	return dash(strings.Join(from, ", "))
}

func portLabel(p agentapi.ServicePort) string {
	label := fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	if p.Port != "" {
		label += " " + p.Port
	}
	return label
}

// side describes the backends of internal or external traffic.
func side(s agentapi.ServiceSide) string {
	switch {
	case s.Without == agentapi.WithoutPass:
		return "-"
	case len(s.Backends) == 0:
		return s.Without
	case s.Algorithm == agentapi.AlgorithmMaglev:
		return fmt.Sprintf("%d, maglev %d", len(s.Backends), s.TableSize)
	}
	return fmt.Sprintf("%d, %s", len(s.Backends), s.Algorithm)
}

// more lists the options of a frontend.
func more(p agentapi.ServicePort, f agentapi.Frontend) string {
	var all []string
	if p.AffinitySeconds > 0 {
		all = append(all, "affinity "+(time.Duration(p.AffinitySeconds)*time.Second).String())
	}
	if f.Kind == "ClusterIP" && p.InternalLocal || f.Kind != "ClusterIP" && p.ExternalLocal {
		all = append(all, "local only")
	}
	if f.DSR {
		all = append(all, "DSR")
	}
	if len(f.Sources) > 0 {
		all = append(all, "from "+join(f.Sources))
	}
	return dash(strings.Join(all, ", "))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
