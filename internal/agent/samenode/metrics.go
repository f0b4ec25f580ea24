package samenode

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. What it describes is not checked at registration.
func (s *SameNode) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Without --same-node=sockets there is nothing to collect.
func (s *SameNode) Collect(out chan<- prometheus.Metric) {
	if s.Datapath == nil {
		return
	}
	metric := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	o := s.Status()
	metric(prometheus.GaugeValue, prometheus.NewDesc("beeline_same_node_pods", "Pods that opted in to same-node sockets.", nil, nil), float64(o.Pods))
	sockets := prometheus.NewDesc("beeline_same_node_sockets", "Open TCP sockets between pods that opted in, by how they send.", []string{"path"}, nil)
	metric(prometheus.GaugeValue, sockets, float64(o.Meeting), "sockets")
	metric(prometheus.GaugeValue, sockets, float64(o.Sockets-o.Meeting), "packets")
	metric(prometheus.CounterValue, prometheus.NewDesc("beeline_same_node_joined_total", "TCP sockets that could meet another one.", nil, nil), float64(o.Counts.Joined))
	metric(prometheus.CounterValue, prometheus.NewDesc("beeline_same_node_no_share_total", "TCP sockets beyond the share of their pod, which use packets.", nil, nil), float64(o.Counts.NoShare))
	left := prometheus.NewDesc("beeline_same_node_left_total", "TCP sockets that went back to packets.", []string{"reason"}, nil)
	for reason, n := range o.Counts.Left {
		metric(prometheus.CounterValue, left, float64(n), string(reason))
	}
	metric(prometheus.CounterValue, prometheus.NewDesc("beeline_same_node_messages_total", "Messages that went from socket to socket.", nil, nil), float64(o.Counts.Messages))
	metric(prometheus.CounterValue, prometheus.NewDesc("beeline_same_node_bytes_total", "Bytes that went from socket to socket.", nil, nil), float64(o.Counts.Bytes))
	metric(prometheus.CounterValue, prometheus.NewDesc("beeline_same_node_destroyed_total", "TCP sockets that were destroyed because policies no longer allow their connection.", nil, nil), float64(o.Destroyed))
}
