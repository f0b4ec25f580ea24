package datapath

import "time"

// What tests outside the package need to know of it.
const (
	settlingTime = settling
	expiryCalls  = slots
)

// unansweredLasts is how long a TCP connection without a reply lasts.
func unansweredLasts(protocol uint8) time.Duration {
	return entry{key: bpfTuple{Protocol: protocol}}.lasts(ConnectionOpening, bpfNatEntry{})
}

// removeByKey removes a connection by the key of one of its directions, as Expire would.
func (c *Connections) removeByKey(key bpfTuple) error {
	e := entry{key: key}
	if err := c.connections.Lookup(&e.key, &e.value); err != nil {
		return err
	}
	_, err := c.remove(e)
	return err
}
