package masquerade

import (
	"bytes"
	"reflect"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// state is what the kernel has of our table.
type state struct {
	// table tells whether it exists, sound whether its chains, rules and sets are as wanted, elements aside.
	table, sound bool
	ranges       map[string][]addressRange
}

// read compares the table with what is wanted, set elements aside, and reads those.
func read(connection *nftables.Conn, wanted layout) (state, error) {
	tables, err := connection.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return state{}, err
	}
	present := state{ranges: map[string][]addressRange{}}
	for _, table := range tables {
		present.table = present.table || table.Name == tableName
	}
	if !present.table {
		return present, nil
	}
	sound, err := sameChains(connection, wanted.chains)
	if err != nil || !sound {
		return present, err
	}
	sets, err := connection.GetSets(ourTable())
	if err != nil || len(sets) != len(wanted.sets) {
		return present, err
	}
	for _, want := range wanted.sets {
		got := findSet(sets, want.name)
		if got == nil || !got.Interval || got.KeyType.Name != want.kind.Name {
			return present, nil
		}
		elements, err := connection.GetSetElements(got)
		if err != nil {
			return present, err
		}
		present.ranges[want.name] = rangesFrom(elements)
	}
	present.sound = true
	return present, nil
}

func findSet(sets []*nftables.Set, name string) *nftables.Set {
	for _, set := range sets {
		if set.Name == name {
			return set
		}
	}
	return nil
}

// sameChains tells whether the table has these chains and no other.
func sameChains(connection *nftables.Conn, wanted []chain) (bool, error) {
	all, err := connection.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, err
	}
	present := map[string]*nftables.Chain{}
	for _, chain := range all {
		if chain.Table.Name == tableName {
			present[chain.Name] = chain
		}
	}
	if len(present) != len(wanted) {
		return false, nil
	}
	for _, chain := range wanted {
		sound, err := sameChain(connection, present[chain.name], chain)
		if err != nil || !sound {
			return false, err
		}
	}
	return true, nil
}

// sameChain tells whether got, which may be nil, is the chain that is wanted, in its place, with exactly its
// rules.
func sameChain(connection *nftables.Conn, got *nftables.Chain, wanted chain) (bool, error) {
	want := wanted.kernel()
	if got == nil || got.Type != want.Type || !same(got.Hooknum, want.Hooknum) || !same(got.Priority, want.Priority) || !same(got.Policy, want.Policy) {
		return false, nil
	}
	rules, err := connection.GetRules(ourTable(), want)
	if err != nil || len(rules) != len(wanted.rules) {
		return false, err
	}
	for i, rule := range rules {
		comment := userdata.AppendString(nil, userdata.TypeComment, wanted.rules[i].comment)
		if !bytes.Equal(rule.UserData, comment) || !sameExprs(rule.Exprs, wanted.rules[i].exprs) {
			return false, nil
		}
	}
	return true, nil
}

func same[T comparable](got, want *T) bool {
	return got != nil && want != nil && *got == *want
}

func sameExprs(got, want []expr.Any) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !reflect.DeepEqual(wish(got[i]), wish(want[i])) {
			return false
		}
	}
	return true
}

// wish reduces an expression to what was asked for: counts and the kernel's own numbers are left out.
func wish(e expr.Any) expr.Any {
	switch e := e.(type) {
	case *expr.Counter:
		return &expr.Counter{}
	case *expr.Lookup:
		return &expr.Lookup{SourceRegister: e.SourceRegister, SetName: e.SetName, Invert: e.Invert}
	}
	return e
}
