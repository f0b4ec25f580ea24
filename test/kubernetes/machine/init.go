package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children are the running services. Process 1 reaps all processes, also orphans, and reports the end of a service to
// its goroutine.
type children struct {
	sync.Mutex
	exits map[int]chan syscall.WaitStatus
}

// supervise is the second stage: process 1 of the machine. It does not return; Stop kills it.
func supervise(name string) error {
	s, err := readSpec(name)
	if err != nil {
		return err
	}
	c := &children{exits: map[int]chan syscall.WaitStatus{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for _, service := range s.Services {
		go c.keepRunning(service)
	}
	for range signals {
		c.reap()
	}
	return nil
}

func (c *children) reap() {
	c.Lock()
	defer c.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
		if exit, ok := c.exits[pid]; ok {
			exit <- status
			delete(c.exits, pid)
		}
	}
}

// pause is the time until a service that ended is restarted.
const pause = time.Second

func (c *children) keepRunning(s Service) {
	for _, condition := range s.After {
		await(condition)
	}
	for failures := 1; ; failures++ {
		start := time.Now()
		why := c.run(s)
		fmt.Fprintf(os.Stderr, "%s ended after %s: %s\n", s.Name, time.Since(start).Round(time.Millisecond), why)
		if err := recordFailure(s.Name, failures, why); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n", err)
		}
		time.Sleep(pause)
	}
}

// run runs the service until it ends, and returns how it ended.
func (c *children) run(s Service) string {
	log, err := os.OpenFile("/var/log/components/"+s.Name+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	program, err := exec.LookPath(s.Args[0])
	if err != nil {
		return err.Error()
	}
	exit := make(chan syscall.WaitStatus, 1)
	c.Lock() // until the process is registered, so that its end is not missed
	pid, err := syscall.ForkExec(program, s.Args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   environment,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err == nil {
		c.exits[pid] = exit
	}
	c.Unlock()
	if err != nil {
		return fmt.Sprintf("start %s: %v", program, err)
	}
	status := <-exit
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

var null = func() *os.File {
	f, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	return f
}()

// await returns when a condition of Service.After holds. It polls often, because waits are a third of a cluster's start
// time.
func await(condition string) {
	for !holds(condition) {
		time.Sleep(50 * time.Millisecond)
	}
}

// readiness requests have no secrets, and this process cannot verify the servers' certificates.
var readiness = &http.Client{
	Timeout: 2 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	},
}

func holds(condition string) bool {
	if strings.HasPrefix(condition, "/") {
		_, err := os.Stat(condition)
		return err == nil
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, condition, nil)
	if err != nil {
		return false
	}
	answer, err := readiness.Do(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
