package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/beeline-cni/beeline/internal/agent/status"
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
	m.registry.MustRegister(m.requests, m.reconciles, m.changes, &nodeCollector{a}, a.flows, a.sameNode,
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

func (m *metrics) applied(took time.Duration) { m.changes.Observe(took.Seconds()) }

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// nodeCollector reads status and drop counters at each scrape.
type nodeCollector struct{ agent *Agent }

// Describe implements prometheus.Collector. What it describes is not checked at registration.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	a := c.agent
	s := a.nodeStatus()
	info := prometheus.NewDesc("beeline_info", "Always 1; what runs here.", []string{"version", "node", "routing"}, nil)
	if err := a.addPrograms(s); err != nil {
		out <- prometheus.NewInvalidMetric(info, err)
		return
	}
	gauge(info, 1, s.Version, s.Node, string(a.modes.Routing))
	gauge(prometheus.NewDesc("beeline_ready", "1 when pods can be added.", nil, nil), number(s.Ready))
	gauge(prometheus.NewDesc("beeline_problems", "Problems that `beeline status` lists.", nil, nil), float64(len(s.Problems)))
	gauge(prometheus.NewDesc("beeline_endpoints", "Pod interfaces of this node.", nil, nil), float64(s.Endpoints))
	for _, p := range s.Pools {
		gauge(prometheus.NewDesc("beeline_addresses_used", "Addresses in use in a pod range of this node.", []string{"range"}, nil), float64(p.Used), p.Prefix.String())
	}
	if len(s.Uplinks) > 0 {
		gauge(prometheus.NewDesc("beeline_mtu_bytes", "MTU that pods get.", nil, nil), float64(a.podMTU()))
	}
	byPath := map[string]int{}
	for _, n := range s.Nodes {
		byPath[n.Path]++
	}
	for path, nodes := range byPath {
		gauge(prometheus.NewDesc("beeline_nodes", "Other nodes by the path to their pods.", []string{"path"}, nil), float64(nodes), path)
	}
	a.collectEncryption(out, gauge, counter)
	objects := prometheus.NewDesc("beeline_cluster_objects", "Objects of the cluster in the agent's snapshot, by kind; missing until a kind is listed.", []string{"kind"}, nil)
	for _, o := range s.Cluster.Objects {
		if o.Synced {
			gauge(objects, float64(o.Count), o.Kind)
		}
	}
	gauge(prometheus.NewDesc("beeline_cluster_source_reachable", "0 while the API server is unreachable.", nil, nil), number(s.Cluster.Reachable))
	counter(prometheus.NewDesc("beeline_cluster_source_outages_total", "How often the API server became unreachable.", nil, nil), float64(s.Cluster.Outages))
	c.collectTables(out, gauge, counter)
	runs := prometheus.NewDesc("beeline_program_runs_total", "Runs of a BPF program; counted only while kernel.bpf_stats_enabled is set.", []string{"program"}, nil)
	runTime := prometheus.NewDesc("beeline_program_run_seconds_total", "Time in a BPF program; counted only while kernel.bpf_stats_enabled is set.", []string{"program"}, nil)
	for _, p := range s.Programs {
		counter(runs, float64(p.RunCount), p.Name)
		counter(runTime, time.Duration(p.RunTime).Seconds(), p.Name)
	}
	packets := prometheus.NewDesc("beeline_dropped_packets_total", "Packets dropped by the datapath.", []string{"program", "reason"}, nil)
	bytes := prometheus.NewDesc("beeline_dropped_bytes_total", "Bytes dropped by the datapath, including link-layer headers.", []string{"program", "reason"}, nil)
	drops, err := a.Drops(context.Background())
	if err != nil {
		out <- prometheus.NewInvalidMetric(packets, err)
		return
	}
	for _, d := range drops {
		counter(packets, float64(d.Packets), d.Program, d.Reason)
		counter(bytes, float64(d.Bytes), d.Program, d.Reason)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collectTables collects NAT and conntrack entries, what expired of them, and the last counts of maps.
func (c *nodeCollector) collectTables(out chan<- prometheus.Metric, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	a := c.agent
	nat := prometheus.NewDesc("beeline_nat_entries", "Connections that are translated packet by packet.", []string{"kind", "protocol", "state"}, nil)
	for _, n := range a.translation().Connections {
		gauge(nat, float64(n.Count), n.Kind, n.Protocol, n.State)
	}
	conntrack := prometheus.NewDesc("beeline_conntrack_entries", "Connections of pods that NetworkPolicies select, and connections that flows report.", []string{"protocol", "state"}, nil)
	for _, n := range a.datapath.Conntrack.Counts() {
		gauge(conntrack, float64(n.Entries), cluster.Protocol(n.Protocol).String(), string(n.State))
	}
	removed := a.expiry.Status()
	counter(prometheus.NewDesc("beeline_nat_expired_total", "Expired NAT entries that were removed.", nil, nil), float64(removed.Expired))
	counter(prometheus.NewDesc("beeline_conntrack_expired_total", "Expired conntrack entries that were removed.", nil, nil), float64(removed.ExpiredConntrack))
	counter(prometheus.NewDesc("beeline_nat_expiry_errors_total", "Failures to remove expired NAT and conntrack entries, or NAT entries of removed backends.", nil, nil), float64(removed.Failures))
	counter(prometheus.NewDesc("beeline_sockets_destroyed_total", "UDP sockets that were destroyed because their backend was removed.", nil, nil), float64(removed.Destroyed))
	entries := prometheus.NewDesc("beeline_map_entries", "Entries of a BPF map.", []string{"map"}, nil)
	maps, at, err := a.mapCounts.Latest(status.ScrapePatience)
	if err != nil {
		out <- prometheus.NewInvalidMetric(entries, err)
		return
	}
	bytes := prometheus.NewDesc("beeline_map_bytes", "Memory of a BPF map.", []string{"map"}, nil)
	capacity := prometheus.NewDesc("beeline_map_entries_max", "Capacity of a BPF map in entries.", []string{"map"}, nil)
	for _, m := range maps {
		gauge(bytes, float64(m.Bytes), m.Name)
		gauge(entries, float64(m.Entries), m.Name)
		gauge(capacity, float64(m.MaxEntries), m.Name)
		if m.Name == "backends" && a.services != nil {
			gauge(prometheus.NewDesc("beeline_services_backends", "Backends of Services, once for each set.", nil, nil), float64(m.Entries))
		}
	}
	if !at.IsZero() {
		gauge(prometheus.NewDesc("beeline_map_count_age_seconds", "Age of the entry counts of BPF maps: large tables are counted in the background, and a scrape does not wait long.", nil, nil), time.Since(at).Seconds())
	}
}
