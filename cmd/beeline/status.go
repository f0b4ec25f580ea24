package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newStatusCommand(e cli.Env) *cobra.Command {
	return newReadCommand(e, "status", "Show the state of this node's network, with its problems", (*agentapi.Client).Status, printStatus)
}

func printStatus(w io.Writer, s *agentapi.Status) error {
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	fmt.Fprintf(w, "Node %s is %s   (beeline %s, Linux %s, agent %d since %s)\n", s.Node, ready, s.Version, s.Kernel, s.PID, s.Started)
	for _, p := range s.Problems {
		fmt.Fprintf(w, "  problem: %s\n", p)
	}
	sections := []struct {
		title string
		rows  [][]string
	}{
		{"Settings", choiceRows(s.Choices)},
		{"Cluster (" + s.Cluster.From + ")", clusterRows(s.Cluster)},
		{"Uplinks", uplinkRows(s.Uplinks)},
		{"Pod addresses", poolRows(s)},
		{"Other nodes", nodeRows(s.Nodes)},
		{"Encryption", peerRows(s.Nodes, time.Now())},
		{"Services and NAT", translationRows(s)},
		{"NetworkPolicies", policyRows(s)},
		{"Programs", programRows(s.Programs)},
		{"Maps", mapRows(s.Maps)},
		{"Kernel features", featureRows(s.Features)},
	}
	for _, section := range sections {
		if len(section.rows) < 2 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", section.title)
		for i := range section.rows {
			section.rows[i][0] = "  " + section.rows[i][0]
		}
		if err := cli.Table(w, section.rows); err != nil {
			return err
		}
	}
	return nil
}

func choiceRows(all []agentapi.Choice) [][]string {
	rows := [][]string{{"SETTING", "ACTIVE", "REQUESTED", "REASON"}}
	for _, c := range all {
		rows = append(rows, []string{c.Name, c.Selected, c.Requested, c.Reason})
	}
	return rows
}

func clusterRows(c agentapi.Cluster) [][]string {
	rows := [][]string{{"KIND", "OBJECTS"}}
	for _, o := range c.Objects {
		count := fmt.Sprint(o.Count)
		if !o.Synced {
			count = "not synced"
		}
		rows = append(rows, []string{o.Kind, count})
	}
	return rows
}

func uplinkRows(all []agentapi.Uplink) [][]string {
	rows := [][]string{{"DEVICE", "MTU", "MAC", "ADDRESSES"}}
	for _, u := range all {
		rows = append(rows, []string{u.Name, fmt.Sprint(u.MTU), u.MAC, join(u.Addresses)})
	}
	return rows
}

// counts are rows of counts with the capacity of their maps.
type counts struct {
	rows [][]string
	maps map[string]agentapi.Map
}

func newCounts(s *agentapi.Status) *counts {
	c := &counts{rows: [][]string{{"COUNT OF", "CURRENT", "CAPACITY"}}, maps: map[string]agentapi.Map{}}
	for _, m := range s.Maps {
		c.maps[m.Name] = m
	}
	return c
}

// add adds a row with the capacity of a map, if it has one of that name.
func (c *counts) add(name string, current any, in string) {
	capacity := "-"
	if m, ok := c.maps[in]; ok {
		capacity = fmt.Sprint(m.MaxEntries)
	}
	c.rows = append(c.rows, []string{name, fmt.Sprint(current), capacity})
}

// translationRows counts frontends, backends and NAT entries.
func translationRows(s *agentapi.Status) [][]string {
	t, counts := s.Translation, newCounts(s)
	if t.Ports > 0 {
		counts.add("Service ports", t.Ports, "")
		counts.add("frontends", t.Frontends, "services")
		counts.add("backends", counts.maps["backends"].Entries, "backends")
	}
	for _, c := range t.Connections {
		counts.add(fmt.Sprintf("connections: %s, %s, %s", c.Kind, c.Protocol, c.State), c.Count, "")
	}
	if nat := counts.maps["nat"]; nat.MaxEntries > 1 {
		counts.add("NAT entries", nat.Entries, "nat")
		counts.add("pending NAT entries", counts.maps["nat_pending"].Entries, "nat_pending")
		counts.add("expired NAT entries", t.Expired, "")
		counts.add("sockets closed with their backends", t.Destroyed, "")
	}
	return counts.rows
}

func poolRows(s *agentapi.Status) [][]string {
	rows := [][]string{{"POD CIDR", "USED", "FREE"}}
	for _, p := range s.Pools {
		free := fmt.Sprint(p.Free)
		if p.Free == math.MaxInt64 {
			free = "more than 2^63"
		}
		rows = append(rows, []string{p.Prefix.String(), fmt.Sprint(p.Used), free})
	}
	return rows
}

func nodeRows(all []agentapi.RemoteNode) [][]string {
	rows := [][]string{{"NODE", "ADDRESSES", "POD CIDRS", "PATH", "MTU", "MAC"}}
	for _, n := range all {
		mac, mtu := n.MAC, "-"
		switch {
		case mac == "" && strings.Contains(n.Path, agentapi.NodePathDirect):
			mac = "unresolved"
		case mac == "":
			mac = "-"
		}
		if n.MTU != 0 {
			mtu = fmt.Sprint(n.MTU)
		}
		rows = append(rows, []string{n.Name, join(n.Addresses), join(n.PodCIDRs), n.Path, mtu, mac})
	}
	return rows
}

// peerRows are the nodes whose packets have to be encrypted.
func peerRows(all []agentapi.RemoteNode, now time.Time) [][]string {
	rows := [][]string{{"NODE", "ENDPOINT", "LAST HANDSHAKE", "RECEIVED", "SENT", "KEY", "PENDING"}}
	for _, n := range all {
		e := n.Encryption
		if e == nil {
			continue
		}
		handshake, key := "none yet", cmp.Or(e.PublicKey, "-")
		if n.Path == agentapi.NodePathIPsec || e.KeyGeneration != 0 {
			handshake, key = "-", fmt.Sprintf("generation %d", e.KeyGeneration)
		}
		if at, err := time.Parse(time.RFC3339, e.LastHandshake); err == nil {
			handshake = now.Sub(at).Truncate(time.Second).String() + " ago"
		}
		rows = append(rows, []string{
			n.Name, cmp.Or(e.Endpoint, "-"), handshake, byteCount(uint64(max(0, e.ReceivedBytes))), byteCount(uint64(max(0, e.SentBytes))), key, cmp.Or(e.Pending, "-"),
		})
	}
	return rows
}

func programRows(all []agentapi.Program) [][]string {
	rows := [][]string{{"PROGRAM", "ID", "TAG", "ATTACHMENTS", "VERIFIED INSTRUCTIONS", "TIME PER RUN"}}
	for _, p := range all {
		perRun := "not measured (kernel.bpf_stats_enabled=0)"
		if p.RunCount > 0 {
			perRun = fmt.Sprintf("%.0f ns over %d runs", float64(p.RunTime)/float64(p.RunCount), p.RunCount)
		}
		rows = append(rows, []string{p.Name, fmt.Sprint(p.ID), p.Tag, fmt.Sprint(p.Attached), fmt.Sprint(p.Instructions), perRun})
	}
	return rows
}

func mapRows(all []agentapi.Map) [][]string {
	rows := [][]string{{"MAP", "TYPE", "ENTRIES", "CAPACITY", "MEMORY"}}
	var sum uint64
	for _, m := range all {
		sum += m.Bytes
		rows = append(rows, []string{m.Name, m.Type, fmt.Sprint(m.Entries), fmt.Sprint(m.MaxEntries), byteCount(m.Bytes)})
	}
	return append(rows, []string{"total", "", "", "", byteCount(sum)})
}

func featureRows(all []agentapi.Feature) [][]string {
	rows := [][]string{{"KERNEL FEATURE", "AVAILABLE", "USED FOR", "FALLBACK", "REQUIRES"}}
	for _, f := range all {
		available := "yes"
		if !f.Present {
			available = "no"
		}
		rows = append(rows, []string{f.Name, available, f.Gives, f.Instead, f.Needs})
	}
	return rows
}

func join[T netip.Addr | netip.Prefix](all []T) string {
	var s []string
	for _, a := range all {
		s = append(s, fmt.Sprint(a))
	}
	return strings.Join(s, " ")
}
