package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// patience is how long policies may take to be in force. Tests, whose policies take no time, have less of it.
var patience = 20 * time.Second

const (
	// When all answers are right for the first time, everything is asked again so often, each time after a pause: an answer that
	// changes from one time to the next is a wrong one.
	confirmations = 2
	pause         = 500 * time.Millisecond
	// controlPort and those above it are what controls are asked from, each from its own. They are none that the kernel gives to those who
	// name none, so no question is ever asked from the same: a network may let go on what it has once let through.
	controlPort = 20000
)

// Answer is what became of a question.
type Answer struct {
	// Works says whether the connection was answered.
	Works bool
	// Unknown says why nobody knows; nil where that is known.
	Unknown error
}

// Right says whether the answer is known and what it has to be.
func (a Answer) Right(q Question) bool { return a.Unknown == nil && a.Works == q.Want }

// errSilent is why an answer is unknown without which it could not be seen that a policy forbids anything.
var errSilent = errors.New("nobody answers without policies either")

// Answers asks all questions, all at once, and again while any answer is wrong and there is patience left: policies take
// a while to be in force. Then it asks again, and what was answered wrongly any of these times counts as wrong.
//
// What a policy forbids, a broken path forbids as well. So each connection that must not work is made before there are policies, when it has
// to work, and what does not is unknown; then enforce, which puts the policies, is called.
func Answers(ctx context.Context, questions []Question, place Places, address Address, enforce func() error) ([]Answer, error) {
	controls, err := control(ctx, questions, place, address)
	if err != nil {
		return nil, err
	}
	if err := enforce(); err != nil {
		return nil, err
	}
	answers, err := patiently(ctx, questions, func() ([]Answer, error) { return pass(ctx, questions, place, address, 0) })
	if err != nil {
		return nil, err
	}
	for range confirmations {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		again, err := pass(ctx, questions, place, address, 0)
		if err != nil {
			return nil, err
		}
		for i, q := range questions {
			answers[i] = worse(q, answers[i], again[i])
		}
	}
	for i, q := range questions {
		if answers[i].Right(q) && controls[i] != nil {
			answers[i].Unknown = controls[i]
		}
	}
	return answers, nil
}

// control makes the connections that must not work while they have to, and says of each that does not why it shows nothing. There are none of
// the others: those show themselves that their paths work.
func control(ctx context.Context, questions []Question, place Places, address Address) ([]error, error) {
	var asked []Question
	var of []int
	for i, q := range questions {
		if !q.Want {
			q.Want = true
			asked, of = append(asked, q), append(of, i)
		}
	}
	answers, err := patiently(ctx, asked, func() ([]Answer, error) { return pass(ctx, asked, place, address, controlPort) })
	if err != nil {
		return nil, err
	}
	failed := make([]error, len(questions))
	for i, a := range answers {
		switch {
		case a.Unknown != nil:
			failed[of[i]] = fmt.Errorf("without policies: %w", a.Unknown)
		case !a.Works:
			failed[of[i]] = errSilent
		}
	}
	return failed, nil
}

// patiently asks until all answers are right, or patience is over.
func patiently(ctx context.Context, questions []Question, ask func() ([]Answer, error)) ([]Answer, error) {
	for begin := time.Now(); ; {
		answers, err := ask()
		if err != nil || allRight(questions, answers) || time.Since(begin) > patience {
			return answers, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(attempt): // what could not be tried said so at once
		}
	}
}

// pass asks every question once, all at the same time, from a port of its own from source on, or from any for 0.
func pass(ctx context.Context, questions []Question, place Places, address Address, source uint16) ([]Answer, error) {
	answers := make([]Answer, len(questions))
	var wait sync.WaitGroup
	for i, q := range questions {
		asks := inquiry{from: place(q.From), to: netip.AddrPortFrom(address(q.To), q.Port), protocol: q.Protocol, expected: q.Want}
		if source != 0 {
			asks.source = source + uint16(i)
		}
		wait.Go(func() {
			if answers[i].Works, answers[i].Unknown = asks.ask(ctx); answers[i].Unknown != nil {
				answers[i].Unknown = fmt.Errorf("ask from %s to %s: %w", q.From, q.To, answers[i].Unknown)
			}
		})
	}
	wait.Wait()
	return answers, ctx.Err()
}

func allRight(questions []Question, answers []Answer) bool {
	for i, q := range questions {
		if !answers[i].Right(q) {
			return false
		}
	}
	return true
}

// worse is the one of two answers to a question that says less good of the network: a wrong one, else one that is not known.
func worse(q Question, a, b Answer) Answer {
	if rank(q, b) > rank(q, a) {
		return b
	}
	return a
}

func rank(q Question, a Answer) int {
	switch {
	case a.Right(q):
		return 0
	case a.Unknown != nil:
		return 1
	}
	return 2
}
