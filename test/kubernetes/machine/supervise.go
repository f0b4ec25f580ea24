package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Supervise starts the machine's services and keeps them running. Stop kills it.
func Supervise(name string) error {
	s, err := readSpec(name)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, service := range s.Services {
		running.Go(func() { keepRunning(service) })
	}
	running.Wait()
	return nil
}

// pause is the time until a service that ended is restarted.
const pause = time.Second

func keepRunning(s Service) {
	for _, condition := range s.After {
		for !holds(condition) {
			time.Sleep(50 * time.Millisecond) // waits are a third of a cluster's start time
		}
	}
	for failures := 1; ; failures++ {
		start := time.Now()
		why := run(s)
		fmt.Fprintf(os.Stderr, "%s ended after %s: %s\n", s.Name, time.Since(start).Round(time.Millisecond), why)
		if err := recordFailure(s.Name, failures, why); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n", err)
		}
		time.Sleep(pause)
	}
}

// run runs the service until it ends, and returns how it ended.
func run(s Service) string {
	log, err := os.OpenFile("/var/log/components/"+s.Name+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environment, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// readiness requests have no secrets, and this process cannot verify the servers' certificates.
var readiness = &http.Client{
	Timeout: 2 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	},
}

// holds reports whether a condition of Service.After holds.
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
