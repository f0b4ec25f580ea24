package testenv

import (
	"os"
	"strconv"
	"time"
)

// PatienceVariable is the environment variable that says how many times slower than usual this machine is. Emulated machines set it.
const PatienceVariable = "BEELINE_PATIENCE"

// Patience is how long a test waits here for what takes at most usual on other machines. Tests use it for what has to happen, and not
// for what must not.
func Patience(usual time.Duration) time.Duration {
	times, err := strconv.Atoi(os.Getenv(PatienceVariable))
	if err != nil || times < 1 {
		return usual
	}
	return time.Duration(times) * usual
}
