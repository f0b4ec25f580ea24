package encryption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// member is a network in the rounds, with a testbed for each MTU.
type member struct {
	network.Network
	suite    *Suite
	byMTU    map[int]*suite.Testbed
	testbeds []*suite.Testbed
}

// Testbeds are those of the network, the one with the smallest MTU first.
func (m *member) Testbeds() []*suite.Testbed { return m.testbeds }

// Record describes the network for the result, as it is on the first wire.
func (m *member) Record(ctx context.Context) result.Network { return m.testbeds[0].Record(ctx) }

// Sample runs one cell on the wire that it is for.
func (m *member) Sample(ctx context.Context, cell round.Cell, length time.Duration) result.Sample {
	at := cell.Workload.(workload.AtMTU)
	if isPaced(cell) {
		cell.Workload = workload.AtMTU{Workload: workload.NewPaced(m.suite.paced[at.MTU]), MTU: at.MTU}
	}
	return m.byMTU[at.MTU].Sample(ctx, cell, length)
}

// open brings a network up on a wire of each MTU. After an error nothing of it is left.
func (s *Suite) open(ctx context.Context, n network.Network) (*member, error) {
	m := &member{Network: n, suite: s, byMTU: map[int]*suite.Testbed{}}
	for _, mtu := range s.MTUs {
		s.bench.Progress.Step("bringing up %s, MTU %d", n.Name(), mtu)
		t, err := suite.Open(ctx, n, testbed.Options{Nodes: 2, MTU: mtu}, func(t *suite.Testbed) error { return s.fill(ctx, t, mtu) })
		if err != nil {
			for _, t := range m.testbeds {
				err = errors.Join(err, t.Close())
			}
			return nil, fmt.Errorf("MTU %d: %w", mtu, err)
		}
		m.byMTU[mtu], m.testbeds = t, append(m.testbeds, t)
	}
	return m, nil
}

// fill brings up what there is in a lab, a client and a server on the other node, and proves by the wire what the network
// does with a payload.
func (s *Suite) fill(ctx context.Context, t *suite.Testbed, mtu int) error {
	if err := t.Up(ctx); err != nil {
		return err
	}
	for node, name := range []string{"client", "far"} {
		pod, err := t.AddPod(ctx, node, policies.Pod{Namespace: policies.Default, Name: name})
		if err != nil {
			return err
		}
		if err := t.Prepare(pod.Netns, suite.UsualReserved); err != nil {
			return err
		}
		if node == 0 {
			t.Client = pod
		} else {
			t.Server[result.CrossNode] = pod
		}
	}
	if err := t.Verify(ctx); err != nil {
		return err
	}
	w, err := network.VerifyWire(ctx, t.Network, t.Lab, t.Client, t.Server[result.CrossNode])
	if err != nil {
		return err
	}
	kind, _ := network.EncryptionOf(t.Network)
	s.bench.Result.Encryption.Wires = append(s.bench.Result.Encryption.Wires, result.EncryptionWire{
		Network: t.Name(), MTU: mtu, Kind: string(kind), Payload: w.Payload, Frames: w.Frames, Marked: w.Marked, Inside: w.Inside, EncryptedBytes: w.Encrypted,
	})
	t.Account = account
	return t.Serve(ctx, append([]round.Cell{s.maximum}, s.Cells...), workload.UsualPorts, false)
}

// account has the CPU time of all CPUs, since WireGuard encrypts and decrypts on all, and that of the two ends' CPUs where
// they have one each.
func account(s *result.Sample, client, server int, passed func(cpus ...int) procstat.Ticks) {
	s.CPU = passed().CPUTime()
	if client == server {
		return
	}
	for name, cpu := range map[string]int{result.CPUSender: client, result.CPUReceiver: server} {
		if t := passed(cpu); t.Total() > 0 {
			s.Values[name] = 100 * float64(t.Busy()) / float64(t.Total())
		}
	}
}
