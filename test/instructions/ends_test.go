package instructions

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// The two ends are processes of their own, this program again, so that they are born in a pod's namespace and cgroup.
const (
	endVariable     = "BEELINE_END"
	addressVariable = "BEELINE_ADDRESS"
	countVariable   = "BEELINE_COUNT"
)

// transactions are measured after a tenth of them to warm up. Timers of the kernel cost about a permille.
const transactions = 10000

// end runs one end in place of the tests.
func end(name string) int {
	address, err := netip.ParseAddr(os.Getenv(addressVariable))
	if err == nil && name == "server" {
		err = serve(address)
	} else if err == nil {
		err = measure(address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// measure prints the instructions of a number of transactions.
func measure(server netip.Addr) error {
	n, err := strconv.Atoi(os.Getenv(countVariable))
	if err != nil {
		return err
	}
	conn, err := connect(server)
	if err != nil {
		return err
	}
	defer unix.Close(conn)
	if err := request(conn, n/10+1); err != nil {
		return err
	}
	before, err := clock()
	if err != nil {
		return err
	}
	if err := request(conn, n); err != nil {
		return err
	}
	after, err := clock()
	if err != nil {
		return err
	}
	fmt.Println(after - before)
	return nil
}

// cost runs a server and a client and returns the instructions of a transaction.
func cost(t *testing.T, client, server testbed.Netns, address netip.Addr) float64 {
	t.Helper()
	command := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), endVariable+"="+name, addressVariable+"="+address.String(), countVariable+"="+strconv.Itoa(transactions),
			"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
		cmd.Stderr = os.Stderr
		cmd.WaitDelay = time.Second
		return cmd
	}
	serving, err := server.Background(command("server"))
	if err != nil {
		t.Fatalf("start the server: %v", err)
	}
	defer func() { <-serving.Ended }()
	var output strings.Builder
	requesting := command("client")
	requesting.Stdout = &output
	if err := client.Run(requesting); err != nil {
		serving.Kill()
		t.Fatalf("client: %v", err)
	}
	spent, err := strconv.ParseInt(strings.TrimSpace(output.String()), 10, 64)
	if err != nil {
		t.Fatalf("read the client's count: %v", err)
	}
	return float64(spent) / transactions
}
