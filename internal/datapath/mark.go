package datapath

// MarkReply is the bit of skb->mark that tells the datapath: this packet, from a pod to the world, rightly
// carries the pod's address, since it answers to a connection that the world opened. Who masquerades sets it.
const MarkReply = uint32(bpfMarkMARK_REPLY)
