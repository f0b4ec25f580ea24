package ipseckeys

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

// node is a node whose kernel has what was planned last.
type node struct {
	*Tunnels
	address netip.Addr
	kernel  map[state]bool
	// used are all keys that were ever used for a new state.
	used map[string]bool
}

type state struct {
	to  netip.Addr
	spi uint32
}

func newNode(t *testing.T, name string, number byte, keys string) *node {
	dir := t.TempDir()
	path := keyFile(t, keys, 0o400)
	return &node{New(Config{Node: name, Keys: path, Ledger: filepath.Join(dir, "ipsec.json")}), netip.AddrFrom4([4]byte{192, 0, 2, number}), map[state]bool{}, map[string]bool{}}
}

// plan plans for peers that announce this, and makes the tunnels. It fails the test if a key is used for a second state.
func (n *node) plan(t *testing.T, now time.Time, created time.Time, peers map[*node]string) Plan {
	t.Helper()
	in := Input{Created: created, Now: now, Addresses: []netip.Addr{n.address}, Has: func(to netip.Addr, spi uint32) bool { return n.kernel[state{to, spi}] }}
	for peer, announced := range peers {
		in.Peers = append(in.Peers, Peer{Name: peer.config.Node, Announced: announced, Local: n.address, Remote: peer.address})
	}
	slices.SortFunc(in.Peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	p, err := n.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	made := map[state]bool{}
	for _, peer := range p.Peers {
		add := func(to netip.Addr, all []ipsec.Tunnel) {
			for _, tunnel := range all {
				s := state{to, tunnel.SPI}
				if made[s] {
					t.Errorf("%s has the SPI %#x twice", n.config.Node, tunnel.SPI)
				}
				made[s] = true
				if tunnel.Made != n.kernel[s] {
					t.Errorf("%s says of SPI %#x that it was made: %t", n.config.Node, tunnel.SPI, tunnel.Made)
				}
				if !n.kernel[s] && n.used[string(tunnel.Key)+to.String()] {
					t.Errorf("%s makes a state anew with a key that it has used", n.config.Node)
				}
				n.used[string(tunnel.Key)+to.String()] = true
			}
		}
		add(peer.Local, peer.In)
		add(peer.Remote, peer.Out)
	}
	n.kernel = made
	return p
}

var start = time.Unix(1e9, 0)

// Two nodes derive the same keys, for both directions different ones, of the highest generation that both have.
func TestPlanAgrees(t *testing.T) {
	a := newNode(t, "a", 1, "1 aes-128-gcm "+secret+"\n2 aes-256-gcm "+secret)
	b := newNode(t, "b", 2, "1 aes-128-gcm "+secret+"\n2 aes-256-gcm "+secret+"\n3 aes-256-gcm "+secret)
	ofA, ofB := a.plan(t, start, start, nil).Announce, b.plan(t, start, start, nil).Announce
	atA, atB := a.plan(t, start, start, map[*node]string{b: ofB.String()}), b.plan(t, start, start, map[*node]string{a: ofA.String()})
	if atA.Named["b"].Generation != 2 || atB.Named["a"].Generation != 2 || len(atA.Wrong)+len(atB.Wrong) > 0 {
		t.Fatalf("generations %d and %d, wrong %v %v", atA.Named["b"].Generation, atB.Named["a"].Generation, atA.Wrong, atB.Wrong)
	}
	find := func(all []ipsec.Tunnel, spi uint32) ipsec.Tunnel {
		i := slices.IndexFunc(all, func(x ipsec.Tunnel) bool { return x.SPI == spi })
		if i < 0 {
			t.Fatalf("no tunnel with SPI %#x", spi)
		}
		return all[i]
	}
	for ipv6, spi := range atA.Named["b"].Use {
		out, in := find(atA.Named["b"].Out, spi), find(atB.Named["a"].In, spi)
		if !reflect.DeepEqual(out, in) || out.IPv6 != ipv6 || len(out.Key) != 36 {
			t.Errorf("a encrypts by %+v, b decrypts by %+v", out, in)
		}
	}
	keys := map[string]bool{}
	for _, all := range [][]ipsec.Tunnel{atA.Peers[0].In, atA.Peers[0].Out} {
		for _, tunnel := range all {
			if keys[string(tunnel.Key)] || tunnel.SPI < 256 {
				t.Errorf("SPI %#x, key used twice: %t", tunnel.SPI, keys[string(tunnel.Key)])
			}
			keys[string(tunnel.Key)] = true
		}
	}
}

// Wrong announcements concern their node only, with a reason.
func TestPlanWrong(t *testing.T) {
	a, b, c := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, ""), newNode(t, "c", 3, "")
	good := strings.Repeat("0a", epochBytes) + " 2"
	for text, want := range map[string]string{
		"": "has announced no keys", "x": "no epoch", strings.Repeat("0A", epochBytes) + " 2": "no epoch", strings.Repeat("0a", epochBytes): "no generation",
		strings.Repeat("0b", epochBytes) + " 2,x": "no generation", strings.Repeat("0b", epochBytes) + " 1": "no key of IPsec that this node has",
		strings.Repeat("0b", epochBytes) + strings.Repeat(",1", 99): "no epoch", strings.Repeat("0b", epochBytes) + " 1" + strings.Repeat(",1", 99): "100 generations",
	} {
		p := a.plan(t, start, start, map[*node]string{b: text, c: good})
		if !strings.Contains(p.Wrong["b"], want) || p.Named["c"].Generation != 2 || len(p.Wrong) != 1 {
			t.Errorf("%.50q: wrong %v, want %q", text, p.Wrong, want)
		}
	}
}

// An epoch that a peer had before is refused; its tunnels stay for a while, and no other node notices.
func TestPlanRefusesFormerEpoch(t *testing.T) {
	a, b, c := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, ""), newNode(t, "c", 3, "")
	epoch := func(b string) string { return strings.Repeat(b, epochBytes) + " 2" }
	first := a.plan(t, start, start, map[*node]string{b: epoch("0b"), c: epoch("0c")})
	for _, e := range []string{"1b", "0b", "1b", "2b", "0b", "1b"} {
		p := a.plan(t, start, start, map[*node]string{b: epoch(e), c: epoch("0c")})
		if p.Announce.Epoch != first.Announce.Epoch {
			t.Fatalf("with %s of another node a begins a new epoch", e)
		}
		if refused := p.Wrong["b"] != ""; refused != (p.Named["b"].Generation == 0) {
			t.Errorf("%s: wrong %q, generation %d", e, p.Wrong["b"], p.Named["b"].Generation)
		}
	}
	if p := a.plan(t, start, start, map[*node]string{b: epoch("0b"), c: epoch("0c")}); !strings.Contains(p.Wrong["b"], "had before") {
		t.Errorf("wrong: %v", p.Wrong)
	}
	// Gone and back, at once and after long.
	for _, gone := range []time.Duration{time.Minute, goneFor + time.Second} {
		a.plan(t, start, start, map[*node]string{b: epoch("2b"), c: epoch("0c")})
		a.plan(t, start, start, map[*node]string{c: epoch("0c")})
		a.plan(t, start.Add(gone), start, map[*node]string{c: epoch("0c")})
		p := a.plan(t, start.Add(gone), start, map[*node]string{b: epoch("2b"), c: epoch("0c")})
		if (p.Wrong["b"] != "") != (gone > goneFor) || p.Announce.Epoch != first.Announce.Epoch {
			t.Errorf("back after %v: wrong %q", gone, p.Wrong["b"])
		}
	}
}

// A node begins a new epoch when its states are gone, when its Node object is another one, and when its ledger is gone. A new
// agent goes on.
func TestPlanRenews(t *testing.T) {
	a, b := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, "")
	peers := map[*node]string{b: strings.Repeat("0b", epochBytes) + " 2"}
	now := a.plan(t, start, start, peers)
	expect := func(what string, renewed bool, created time.Time) {
		t.Helper()
		p := a.plan(t, start, created, peers)
		if (p.Announce.Epoch != now.Announce.Epoch) != renewed {
			t.Errorf("%s: new epoch %t, want %t", what, !renewed, renewed)
		}
		if again := a.plan(t, start, created, peers); again.Announce.Epoch != p.Announce.Epoch {
			t.Errorf("%s: and once more", what)
		}
		now = p
	}
	expect("nothing", false, start)
	a.Tunnels = New(a.config)
	expect("a new agent", false, start)
	for s := range maps.Clone(a.kernel) {
		delete(a.kernel, s)
		expect("a state is gone", true, start)
		break
	}
	expect("another Node object", true, start.Add(time.Second))
	if err := a.Renew(); err != nil {
		t.Fatal(err)
	}
	expect("renewed", true, start.Add(time.Second))
	peer := peers[b]
	peers[b] = strings.Repeat("0c", epochBytes) + " 2"
	expect("the peer's epoch", false, start.Add(time.Second))
	peers[b] = peer
}

// A peer whose address changes within an epoch is refused until it comes back or announces another epoch; no other node notices.
func TestPlanRefusesOtherAddress(t *testing.T) {
	a, b, c := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, ""), newNode(t, "c", 3, "")
	peers := map[*node]string{b: strings.Repeat("0b", epochBytes) + " 2", c: strings.Repeat("0c", epochBytes) + " 2"}
	first := a.plan(t, start, start, peers)
	home, away := b.address, netip.MustParseAddr("192.0.2.9")
	for _, now := range []struct {
		at     netip.Addr
		epoch  string
		refuse bool
	}{{away, "0b", true}, {home, "0b", false}, {away, "1b", false}, {home, "1b", true}, {home, "2b", false}} {
		b.address, peers[b] = now.at, strings.Repeat(now.epoch, epochBytes)+" 2"
		p := a.plan(t, start, start, peers)
		if refused := strings.Contains(p.Wrong["b"], "its address was"); refused != now.refuse || refused != (p.Named["b"].Generation == 0) {
			t.Errorf("%+v: wrong %v", now, p.Wrong)
		}
		if p.Announce.Epoch != first.Announce.Epoch || p.Named["c"].Generation != 2 {
			t.Errorf("%+v: a has another epoch, or c no tunnel", now)
		}
	}
}

// A Node that exists may announce nothing, or have no address, for as long as it likes, and go on.
func TestPlanKeepsTunnelsOfNodes(t *testing.T) {
	a, b := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, "")
	good := map[*node]string{b: strings.Repeat("0b", epochBytes) + " 2"}
	first := a.plan(t, start, start, good)
	now := start
	for _, without := range []Input{{Peers: []Peer{{Name: "b", Local: a.address, Remote: b.address}}}, {Unreachable: []string{"b"}}} {
		for range 3 {
			now = now.Add(goneFor)
			without.Created, without.Now, without.Has = start, now, func(to netip.Addr, spi uint32) bool { return a.kernel[state{to, spi}] }
			p, err := a.Plan(without)
			if err != nil || len(p.Peers) != 1 || len(p.Named) != 0 {
				t.Fatalf("tunnels to %d peers, %d in use, error %v", len(p.Peers), len(p.Named), err)
			}
		}
		if p := a.plan(t, now, start, good); len(p.Wrong) > 0 || p.Announce.Epoch != first.Announce.Epoch {
			t.Errorf("wrong %v", p.Wrong)
		}
	}
}

// What the kernel has refused is made another time, in the same epoch. What was made before is not made anew.
func TestPlanOfRefused(t *testing.T) {
	a, b, c := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, ""), newNode(t, "c", 3, "")
	peers := map[*node]string{b: strings.Repeat("0b", epochBytes) + " 2", c: strings.Repeat("0c", epochBytes) + " 2"}
	first := a.plan(t, start, start, peers)
	refuse := func(name string) {
		if err := a.NotMade(map[string]error{name: errors.New("no memory")}); err != nil {
			t.Fatal(err)
		}
	}
	refuse("b")
	for _, peer := range first.Peers {
		for _, tunnel := range slices.Concat(peer.In, peer.Out) {
			if peer.Name == "b" {
				delete(a.kernel, state{peer.Local, tunnel.SPI})
				delete(a.kernel, state{peer.Remote, tunnel.SPI})
				clear(a.used)
			}
		}
	}
	a.Tunnels = New(a.config)
	again := a.plan(t, start, start, peers)
	if again.Announce.Epoch != first.Announce.Epoch || again.Named["b"].Generation != 2 {
		t.Errorf("after b was refused: epoch %s of %s, tunnel %+v", again.Announce.Epoch, first.Announce.Epoch, again.Named["b"])
	}
	a.plan(t, start, start, peers)
	refuse("c")
	if p := a.plan(t, start, start, peers); p.Announce.Epoch != first.Announce.Epoch {
		t.Error("tunnels that were made before begin a new epoch")
	}
}

// A node that moves begins a new epoch, also if it has made no tunnel yet: others may have made theirs.
func TestPlanMoves(t *testing.T) {
	a := newNode(t, "a", 1, "2 aes-128-gcm "+secret)
	epoch := a.plan(t, start, start, nil).Announce.Epoch
	ipv4, ipv6 := a.address, netip.MustParseAddr("2001:db8::1")
	for _, now := range []struct {
		own   []netip.Addr
		moved bool
	}{
		{[]netip.Addr{ipv4, ipv6}, false}, {[]netip.Addr{ipv4}, false}, {nil, false}, {[]netip.Addr{ipv4, ipv6.Next()}, true},
		{[]netip.Addr{ipv6.Next()}, true}, {[]netip.Addr{ipv6.Next(), ipv4}, true}, {[]netip.Addr{ipv4.Next(), ipv4}, true},
	} {
		p, err := a.Plan(Input{Created: start, Addresses: now.own, Now: start})
		if err != nil {
			t.Fatal(err)
		}
		if (p.Announce.Epoch != epoch) != now.moved {
			t.Errorf("%v: new epoch %t, want %t", now.own, !now.moved, now.moved)
		}
		epoch = p.Announce.Epoch
	}
}

// A peer that announces epochs without end is refused in the end; no other node notices.
func TestPlanRefusesManyEpochs(t *testing.T) {
	l, err := newLedger("boot", start)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr("192.0.2.2")
	for i := range 2 * retiredMax {
		_, err = l.meet("b", fmt.Sprintf("%016x%016x", i, i), at)
		if refused := err != nil; refused != (i > retiredMax) {
			t.Fatalf("epoch %d: error %v", i, err)
		}
	}
	if l.full() {
		t.Error("one peer ends the epoch of this node")
	}
	if _, err := l.meet("c", strings.Repeat("0c", epochBytes), at.Next()); err != nil {
		t.Error(err)
	}
}

// The disk has the epoch that is announced, also when there is no peer any more.
func TestPlanSavesRenewed(t *testing.T) {
	a, b := newNode(t, "a", 1, "2 aes-128-gcm "+secret), newNode(t, "b", 2, "")
	a.plan(t, start, start, map[*node]string{b: strings.Repeat("0b", epochBytes) + " 2"})
	clear(a.kernel)
	announced := a.plan(t, start, start, nil).Announce.Epoch
	a.Tunnels = New(a.config)
	if got := a.plan(t, start, start, nil).Announce.Epoch; got != announced {
		t.Errorf("a new agent announces the epoch %s, want %s", got, announced)
	}
}

// Whatever happens to nodes, no node ever uses a key for a second state.
func TestPlanNeverReusesKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 2026))
	file := func() string {
		var lines string
		for g := 1; g <= 3; g++ {
			if rng.IntN(3) > 0 || g == 2 {
				lines += string(rune('0'+g)) + " aes-128-gcm " + secret + "\n"
			}
		}
		return lines
	}
	now := start
	a := newNode(t, "a", 1, file())
	others := []*node{newNode(t, "b", 2, file()), newNode(t, "c", 3, file()), newNode(t, "d", 4, file())}
	epochs := []string{}
	for i := range 6 {
		epochs = append(epochs, strings.Repeat(string(rune('0'+i))+"f", epochBytes))
	}
	created := start
	for range 1000 {
		now = now.Add(time.Duration(rng.IntN(int(retireFor)) / 4))
		peers := map[*node]string{}
		for _, other := range others {
			if rng.IntN(5) > 0 {
				peers[other] = epochs[rng.IntN(len(epochs))] + " " + []string{"1", "2", "3,2", "2,1", "9"}[rng.IntN(5)]
			}
		}
		switch rng.IntN(20) {
		case 0:
			a.Tunnels = New(a.config)
		case 1:
			for s := range a.kernel {
				delete(a.kernel, s)
				break
			}
		case 2:
			clear(a.kernel)
		case 3:
			a.config.Keys = keyFile(t, file(), 0o400)
			if rng.IntN(2) == 0 {
				a.Tunnels = New(a.config)
			}
		case 4:
			created = created.Add(time.Second)
		case 5:
			others[rng.IntN(len(others))].address = netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + rng.IntN(3))})
		}
		a.plan(t, now, created, peers)
	}
}
