package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

func newIPPoolsCommand(e cli.Env) *cobra.Command {
	return newListCommand(e, "ippools", "List the IPPools of the cluster with their free addresses", (*agentapi.Client).IPPools, printIPPools,
		func(p agentapi.IPPool) string { return "ippool/" + p.Name })
}

func printIPPools(w io.Writer, all []agentapi.IPPool, wide bool) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "No IPPools in the cluster.")
		return nil
	}
	rows := [][]string{{"IPPOOL", "SUBNETS", "DEVICE", "UPLINK", "VLAN", "TOTAL", "ALLOCATED", "FREE", "STATE"}}
	for _, p := range all {
		vlan := "-"
		if p.VLAN != 0 {
			vlan = fmt.Sprint(p.VLAN)
		}
		use := func(of func(agentapi.IPPoolUse) int64) string {
			var each []string
			for _, f := range p.Families {
				each = append(each, fmt.Sprint(of(f)))
			}
			return dash(strings.Join(each, ", "))
		}
		rows = append(rows, []string{
			p.Name, dash(join(p.Subnets)), cmp.Or(p.Device, "the node's"), dash(p.Uplink), vlan,
			use(func(u agentapi.IPPoolUse) int64 { return u.Total }), use(func(u agentapi.IPPoolUse) int64 { return u.Allocated }),
			use(func(u agentapi.IPPoolUse) int64 { return u.Free }), poolState(p),
		})
	}
	return printTable(w, rows, wide, "UPLINK", "VLAN")
}

// poolState says in a few words which pods a pool is for, and what is wrong with it.
func poolState(p agentapi.IPPool) string {
	var state []string
	switch {
	case p.Invalid != "":
		return "invalid: " + p.Invalid
	case p.Disabled:
		state = append(state, "disabled")
	case p.Default:
		state = append(state, "default")
	default:
		state = append(state, "ready")
	}
	for _, f := range p.Families {
		if f.Free <= 0 {
			state = append(state, "no free "+f.Family+" address")
		}
		if f.Conflicts > 0 {
			state = append(state, fmt.Sprintf("%d %s addresses in use by other machines", f.Conflicts, f.Family))
		}
	}
	return strings.Join(append(state, p.Overlaps...), "; ")
}
