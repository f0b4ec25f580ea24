package datapath

// withoutIterator has the sockets destroy as on a kernel without bpf_sock_destroy.
func (s *Sockets) withoutIterator() { s.probed = true }

// probe says why this kernel cannot destroy sockets by an iterator.
func (s *Sockets) probe() error {
	d, err := loadDestroyer(s.peers)
	if err != nil {
		return err
	}
	return d.close()
}
