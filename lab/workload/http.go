package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
)

// http is wrk asking nginx, over 16 connections, for 1024 bytes that nginx has at hand. It takes whole seconds.
type http struct {
	tool
	// closing asks the server to close the connection after each answer.
	closing bool
}

var (
	httpKeepAlive = newHTTP("http_keepalive", "HTTP, kept alive", "16 connections ask a web server for 1024 bytes again and again.", false)
	httpClose     = newHTTP("http_close", "HTTP, Connection: close", "16 clients ask a web server for 1024 bytes, each time over a new connection that the server closes.", true)
)

func newHTTP(name, title, description string, closing bool) http {
	programs := [][2]string{{"wrk", "wrk"}, {"nginx", "nginx"}}
	return http{tool{info: rate("wrk", name, title, description), programs: programs, start: 100 * time.Millisecond}, closing}
}

func (http) Serve(ctx context.Context, s *Servers, _ int) error {
	dir, err := os.MkdirTemp("", "beeline-nginx-")
	if err != nil {
		return fmt.Errorf("configure nginx: %w", err)
	}
	// nginx reads its configuration, and makes its directories, once and before it listens.
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "nginx.conf")
	ports := s.target.Ports.HTTP
	if len(ports) == 0 {
		return errors.New("configure nginx: no ports for it")
	}
	text := nginxConfig(dir, s.target.Address, ports)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return fmt.Errorf("configure nginx: %w", err)
	}
	return s.start(ctx, "nginx", s.listens(ports[len(ports)-1]), "nginx", "-e", "stderr", "-c", config)
}

// nginxConfig is that of one process that answers without any file.
func nginxConfig(dir string, address netip.Addr, ports []int) string {
	var listen, temporary strings.Builder
	for _, port := range ports {
		fmt.Fprintf(&listen, "listen %s; ", netip.AddrPortFrom(address, uint16(port)))
	}
	for _, what := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temporary, "%s_temp_path %s/%s; ", what, dir, what)
	}
	return fmt.Sprintf(`daemon off; master_process off; pid %s/pid; error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off; keepalive_requests 1000000000;
	%s
	server { %slocation / { default_type text/plain; return 200 "%s"; } }
}
`, dir, temporary.String(), listen.String(), strings.Repeat("x", 1024))
}

func (w http) Run(ctx context.Context, r Request) (Outcome, error) {
	target, seconds := r.Server.Target(), w.whole(r.Length)
	command := []string{"wrk", "-t1", "-c16", "-d" + strconv.Itoa(seconds) + "s", "--latency"}
	if w.closing {
		command = append(command, "-H", "Connection: close")
	}
	port := target.Ports.HTTP[r.Turn%len(target.Ports.HTTP)]
	command = append(command, "http://"+netip.AddrPortFrom(target.Address, uint16(port)).String()+"/")
	out := Outcome{Command: command}
	texts, err := r.run(ctx, time.Duration(seconds)*time.Second+2*overrun, command)
	if err != nil {
		return out, err
	}
	if out.Values, err = parseWrk(texts[0]); err != nil {
		return out, err
	}
	out.Seconds = out.Values[result.Transactions] / out.Values[result.Rate]
	return out, nil
}

// parseWrk reads wrk 4's report. Percentiles are those that it prints; its mean and its rate are of all requests.
func parseWrk(text string) (map[string]float64, error) {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		var err error
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "Socket errors:"), strings.Contains(line, "Non-2xx"):
			return nil, errors.New("wrk: " + strings.TrimSpace(line))
		case len(f) == 2 && f[0] == "Requests/sec:":
			values[result.Rate], err = strconv.ParseFloat(f[1], 64)
		case len(f) > 2 && f[1] == "requests" && f[2] == "in":
			values[result.Transactions], err = strconv.ParseFloat(f[0], 64)
		case len(f) > 1 && wrkTimes[f[0]] != "" && f[1] != "Distribution":
			var d time.Duration
			d, err = time.ParseDuration(f[1])
			values[wrkTimes[f[0]]] = float64(d) / float64(time.Microsecond)
		}
		if err != nil {
			return nil, fmt.Errorf("read wrk: %w", err)
		}
	}
	if !(values[result.Rate] > 0) || !(values[result.Transactions] > 0) {
		return nil, fmt.Errorf("wrk did no work: %s", lastLines(text))
	}
	return values, nil
}

// wrkTimes are the first words of lines with a time.
var wrkTimes = map[string]string{"Latency": result.RTT, "50%": result.RTTP50, "90%": result.RTTP90, "99%": result.RTTP99}
