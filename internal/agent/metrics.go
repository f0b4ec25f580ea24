package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// metrics are what the agent counts itself; everything else is read from the kernel at each scrape.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.HistogramVec
	reconciles *prometheus.HistogramVec
	changes    prometheus.Histogram
}

func newMetrics(a *Agent) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "beeline_request_duration_seconds",
			Help:    "Time the agent took for a request of the CNI plugin.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"request", "result"}),
		reconciles: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "beeline_reconcile_duration_seconds",
			Help:    "Time the agent took to make the kernel hold the desired state.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"result"}),
		changes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "beeline_cluster_change_duration_seconds",
			Help:    "Time from the event of a change in the cluster until it was applied on this node.",
			Buckets: []float64{.005, .01, .025, .05, .1, .2, .5, 1, 5, 30},
		}),
	}
	m.registry.MustRegister(m.requests, m.reconciles, m.changes, &nodeCollector{a}, a.flows,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.services != nil {
		m.registry.MustRegister(a.services)
	}
	if a.policies != nil {
		m.registry.MustRegister(a.policies)
	}
	return m
}

// scrapesAtOnce bounds concurrent scrapes.
const scrapesAtOnce = 3

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}

// request begins a request; the returned function ends it with its error.
func (m *metrics) request(name string, err *error) func() {
	begin := time.Now()
	return func() { m.requests.WithLabelValues(name, result(*err)).Observe(time.Since(begin).Seconds()) }
}

func (m *metrics) reconciled(took time.Duration, err error) {
	m.reconciles.WithLabelValues(result(err)).Observe(took.Seconds())
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// nodeCollector reads status and drop counters at each scrape.
type nodeCollector struct{ agent *Agent }

var (
	descInfo             = prometheus.NewDesc("beeline_info", "Always 1; what runs here.", []string{"version", "node", "routing"}, nil)
	descReady            = prometheus.NewDesc("beeline_ready", "1 when pods can be added.", nil, nil)
	descProblems         = prometheus.NewDesc("beeline_problems", "Problems that `beeline status` lists.", nil, nil)
	descEndpoints        = prometheus.NewDesc("beeline_endpoints", "Pod interfaces of this node.", nil, nil)
	descAddresses        = prometheus.NewDesc("beeline_addresses_used", "Addresses in use in a pod range of this node.", []string{"range"}, nil)
	descNodes            = prometheus.NewDesc("beeline_nodes", "Other nodes by the path to their pods.", []string{"path"}, nil)
	descMTU              = prometheus.NewDesc("beeline_mtu_bytes", "MTU that pods get.", nil, nil)
	descObjects          = prometheus.NewDesc("beeline_cluster_objects", "Objects of the cluster in the agent's snapshot, by kind; missing until a kind is listed.", []string{"kind"}, nil)
	descReachable        = prometheus.NewDesc("beeline_cluster_source_reachable", "0 while the API server is unreachable.", nil, nil)
	descOutages          = prometheus.NewDesc("beeline_cluster_source_outages_total", "How often the API server became unreachable.", nil, nil)
	descDropPackets      = prometheus.NewDesc("beeline_dropped_packets_total", "Packets dropped by the datapath.", []string{"program", "reason"}, nil)
	descDropBytes        = prometheus.NewDesc("beeline_dropped_bytes_total", "Bytes dropped by the datapath, including link-layer headers.", []string{"program", "reason"}, nil)
	descBackends         = prometheus.NewDesc("beeline_services_backends", "Backends of Services, once for each set.", nil, nil)
	descNAT              = prometheus.NewDesc("beeline_nat_entries", "Connections that are translated packet by packet.", []string{"kind", "protocol", "state"}, nil)
	descConntrack        = prometheus.NewDesc("beeline_conntrack_entries", "Connections of pods that NetworkPolicies select, and connections that flows report.", []string{"protocol", "state"}, nil)
	descConntrackExpired = prometheus.NewDesc("beeline_conntrack_expired_total", "Expired conntrack entries that were removed.", nil, nil)
	descNATExpired       = prometheus.NewDesc("beeline_nat_expired_total", "Expired NAT entries that were removed.", nil, nil)
	descNATExpireErrors  = prometheus.NewDesc("beeline_nat_expiry_errors_total", "Failures to remove expired NAT and conntrack entries, or NAT entries of removed backends.", nil, nil)
	descDestroyed        = prometheus.NewDesc("beeline_sockets_destroyed_total", "UDP sockets that were destroyed because their backend was removed.", nil, nil)
	descMapBytes         = prometheus.NewDesc("beeline_map_bytes", "Memory of a BPF map.", []string{"map"}, nil)
	descMapEntries       = prometheus.NewDesc("beeline_map_entries", "Entries of a BPF map.", []string{"map"}, nil)
	descMapMax           = prometheus.NewDesc("beeline_map_entries_max", "Capacity of a BPF map in entries.", []string{"map"}, nil)
	descRuns             = prometheus.NewDesc("beeline_program_runs_total", "Runs of a BPF program; counted only while kernel.bpf_stats_enabled is set.", []string{"program"}, nil)
	descRunTime          = prometheus.NewDesc("beeline_program_run_seconds_total", "Time in a BPF program; counted only while kernel.bpf_stats_enabled is set.", []string{"program"}, nil)
)

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInfo, descReady, descProblems, descEndpoints, descAddresses, descNodes, descMTU,
		descObjects, descReachable, descOutages, descDropPackets, descDropBytes,
		descConntrack, descConntrackExpired,
		descBackends, descNAT, descNATExpired, descNATExpireErrors, descDestroyed,
		descMapBytes, descMapEntries, descMapMax, descMapAge, descRuns, descRunTime,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := c.agent.nodeStatus()
	s.Translation = c.agent.translation()
	if err := c.agent.addPrograms(s); err != nil {
		out <- prometheus.NewInvalidMetric(descInfo, err)
		return
	}
	gauge(descInfo, 1, s.Version, s.Node, string(c.agent.modes.Routing))
	ready := 0.0
	if s.Ready {
		ready = 1
	}
	gauge(descReady, ready)
	gauge(descProblems, float64(len(s.Problems)))
	gauge(descEndpoints, float64(s.Endpoints))
	for _, p := range s.Pools {
		gauge(descAddresses, float64(p.Used), p.Prefix.String())
	}
	if s.Uplink != nil {
		gauge(descMTU, float64(c.agent.podMTU()))
	}
	byPath := map[string]int{}
	for _, n := range s.Nodes {
		byPath[n.Path]++
	}
	for path, nodes := range byPath {
		gauge(descNodes, float64(nodes), path)
	}
	for _, o := range s.Cluster.Objects {
		if o.Synced {
			gauge(descObjects, float64(o.Count), o.Kind)
		}
	}
	reachable := 0.0
	if s.Cluster.Reachable {
		reachable = 1
	}
	gauge(descReachable, reachable)
	counter(descOutages, float64(s.Cluster.Outages))
	c.collectTranslation(s, gauge, counter)
	for _, n := range c.agent.datapath.Conntrack.Counts() {
		gauge(descConntrack, float64(n.Entries), cluster.Protocol(n.Protocol).String(), string(n.State))
	}
	counter(descConntrackExpired, float64(s.Policy.ExpiredConntrack))
	c.collectMaps(out, gauge)
	for _, p := range s.Programs {
		counter(descRuns, float64(p.RunCount), p.Name)
		counter(descRunTime, time.Duration(p.RunTime).Seconds(), p.Name)
	}
	drops, err := c.agent.Drops(context.Background())
	if err != nil {
		out <- prometheus.NewInvalidMetric(descDropPackets, err)
		return
	}
	for _, d := range drops {
		counter(descDropPackets, float64(d.Packets), d.Program, d.Reason)
		counter(descDropBytes, float64(d.Bytes), d.Program, d.Reason)
	}
}

func (c *nodeCollector) collectTranslation(s *agentapi.Status, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, n := range s.Translation.Connections {
		gauge(descNAT, float64(n.Count), n.Kind, n.Protocol, n.State)
	}
	counter(descNATExpired, float64(s.Translation.Expired))
	counter(descNATExpireErrors, float64(c.agent.expiry.Status().Failures))
	counter(descDestroyed, float64(s.Translation.Destroyed))
}
