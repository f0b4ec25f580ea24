package status

import (
	"errors"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// A scrape does not wait for a count that takes long, and counts are made one at a time.
func TestMapCounts(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 10)
	failure := errors.New("no such map")
	var c MapCounts
	c.Read = func() ([]table.MapInfo, error) {
		begun <- struct{}{}
		<-release
		if failure != nil {
			return nil, failure
		}
		return []table.MapInfo{{Name: "routes", Entries: 7}}, nil
	}
	for range 3 {
		if maps, at, err := c.Latest(time.Millisecond); len(maps) > 0 || !at.IsZero() || err != nil {
			t.Errorf("before the first count: %v at %s, %v", maps, at, err)
		}
	}
	if n := len(begun); n != 1 {
		t.Errorf("%d counts at once", n)
	}
	release <- struct{}{}
	close(release)
	if _, _, err := c.Latest(time.Minute); !errors.Is(err, failure) {
		t.Errorf("a count that fails gives %v", err)
	}
	failure = nil
	if maps, at, err := c.Latest(time.Minute); len(maps) != 1 || maps[0].Entries != 7 || time.Since(at) > time.Minute || err != nil {
		t.Errorf("%v at %s, %v", maps, at, err)
	}
}
