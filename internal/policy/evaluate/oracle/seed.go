package oracle

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable that gives a test the seed of an earlier run.
const SeedVariable = "BEELINE_SEED"

// Rand gives numbers that another run can have again: the seed is printed if the test fails or is verbose.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			tb.Fatalf("%s: %v", SeedVariable, err)
		}
		seed = given
	}
	tb.Logf("%s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}
