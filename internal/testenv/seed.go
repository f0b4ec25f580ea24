package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable is the environment variable that gives random tests their seed. Without it every run has the same seed, so CI tests the
// same cases each time; `make campaign` sets it to another number in each round and prints the number of each failure.
const SeedVariable = "BEELINE_SEED"

// defaultSeed is the seed of every run that does not ask for another one.
const defaultSeed = 1

// Seed gives the seed of this run and logs it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	text := os.Getenv(SeedVariable)
	if text == "" {
		return defaultSeed
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", SeedVariable, err)
	}
	tb.Logf("%s=%d", SeedVariable, seed)
	return seed
}

// Rand gives the random numbers of a test, from the seed of this run.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Seed(tb), 0))
}

// Seeds gives n seeds for a test that repeats itself: this run's seed and the next ones.
func Seeds(tb testing.TB, n int) []uint64 {
	tb.Helper()
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = Seed(tb) + uint64(i)
	}
	return seeds
}
