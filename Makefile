# Beeline. `make help` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CLANG_MAJOR := 19
export BPF_CLANG := clang-$(CLANG_MAJOR)
export BPF_STRIP := llvm-strip-$(CLANG_MAJOR)
export BEELINE_REQUIRE ?= 1

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
LINT := go tool -modfile=build/tools/go.mod golangci-lint
GENERATED := $(wildcard internal/datapath/bpf/*_bpfel.* lab/packetgen/*_bpfel.*)
C_SOURCES := $(wildcard bpf/*.[ch] bpf/prog/*.h bpf/lib/*/*.h lab/packetgen/bpf/*.c)
SCRIPTS := build/*.sh .ci/run test/kubernetes/*/*.sh test/vm/download.sh lab/networks/*.sh $(wildcard lab/networks/*/build lab/networks/*/up lab/networks/*/ready)
BENCH_OUT ?= results/latest
RESULTS := bin/tests
BIN ?= bin
IMAGE ?= localhost/beeline:latest
IMAGE_BENCH ?= localhost/beeline-bench:latest
# What a node needs; the image has these and portmap.
PROGRAMS := beeline beeline-agent beeline-cni
PACK := go -C build/image build -o $(abspath $(BIN))/pack-image . && $(BIN)/pack-image
PLUGINS := github.com/containernetworking/plugins
PLUGINS_VERSION = $(shell go -C build/portmap list -m -f '{{.Version}}' $(PLUGINS))

.NOTPARALLEL:
.PHONY: help docs deps build portmap image image-bench image-probe manifests generate generated format lint test test-kubernetes check campaign test-vm cluster cluster-down bench bench-services bench-nodeport bench-policy bench-applications publish clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

deps: ## Install the Debian packages that are missing
	@build/deps.sh $(USE)

build: ## Build bin/beeline, bin/beeline-agent, bin/beeline-cni and bin/beeline-lab
	build/patiently.sh env $(GO_BUILD) -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS) beeline-lab)

# The reference plugin for host ports, unchanged.
portmap:
	CGO_ENABLED=0 go -C build/portmap build -trimpath -buildvcs=false -ldflags '-s -w -X $(PLUGINS)/pkg/utils/buildversion.BuildVersion=$(PLUGINS_VERSION)' \
		-o $(abspath $(BIN))/beeline-portmap $(PLUGINS)/plugins/meta/portmap

image: build portmap ## Make bin/beeline-image.tar, for `ctr -n k8s.io images import --local` and `docker load`
	$(PACK) -gzip -o $(BIN)/beeline-image.tar -name $(IMAGE) -entrypoint beeline-agent -env PATH=/usr/bin \
		-label org.opencontainers.image.title=beeline -label org.opencontainers.image.version=$(VERSION) \
		-label org.opencontainers.image.licenses=Apache-2.0 -label org.opencontainers.image.source=https://github.com/beeline-cni/beeline \
		$(foreach p,$(PROGRAMS) beeline-portmap,$(BIN)/$p=/usr/bin/$p) deploy/rootfs=/

image-bench: USE := bench
image-bench: deps ## Make bin/beeline-bench.tar, the image with the tools for `beeline-lab bench --kubeconfig`
	build/image-bench.sh $(BIN)/beeline-bench.tar $(IMAGE_BENCH)

IMAGE_PROBE ?= localhost/beeline-probe:latest
image-probe: ## Make bin/beeline-probe.tar, the image of the pods of `make test-kubernetes`
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o $(BIN)/probe ./test/kubernetes/probe
	$(PACK) -o $(BIN)/beeline-probe.tar -name $(IMAGE_PROBE) -entrypoint /probe $(BIN)/probe=/probe

manifests: ## Make deploy/beeline.yaml from the Helm chart again
	@rendered=$$(go -C build/chart tool helm template beeline ../../deploy/chart/beeline --namespace=kube-system --kube-version=v1.30.0 | tail -n +2); \
		printf '%s\n' '# Beeline on every node, see docs/install.md. Made from deploy/chart by make manifests.' "$$rendered" >deploy/beeline.yaml

docs: ## Make the pages of docs/reference from the code again
	go test ./docs ./cmd/beeline ./cmd/beeline-agent ./cmd/beeline-lab -run 'TestDropReasons|TestMetrics|TestChartValues|TestReference' -update

generate: ## Compile the BPF programs again; the objects are committed
	@$(BPF_CLANG) --version | grep -q 'version $(CLANG_MAJOR)\.' || \
		{ echo 'generate: needs clang $(CLANG_MAJOR) as $(BPF_CLANG), so that everyone gets the same objects (make deps)' >&2; exit 1; }
	go generate ./internal/datapath/bpf ./lab/packetgen

generated: ## Check that the committed BPF objects are those of the sources
	@before=$$(sha256sum $(GENERATED)); $(MAKE) --no-print-directory generate; [ "$$before" = "$$(sha256sum $(GENERATED))" ] || \
		{ echo 'generated: the BPF objects are not those of the sources: commit what make generate made' >&2; exit 1; }

format: ## Format Go and C sources
	$(LINT) fmt ./...
	clang-format-$(CLANG_MAJOR) -i $(C_SOURCES)

lint: ## Check Go, C and shell sources, and the words and lengths of documents
	build/patiently.sh $(LINT) run ./...
	for module in chart image; do (cd build/$$module && go tool -modfile=../tools/go.mod golangci-lint run ./...); done
	clang-format-$(CLANG_MAJOR) --dry-run --Werror $(C_SOURCES)
	shellcheck $(SCRIPTS)
	go test -count=1 ./docs

# One package at a time (-p 1): labs and measurements would disturb each other. Cached results (-count=1) are of another kernel or moment.
test: deps build generated lint ## Run every test, here and on other kernels (root)
	build/gotestsum.sh 1-test 'go test -json -count=1 -p 1 -timeout 60m ./...' 'go -C build/chart test -json -count=1 ./...' \
		'go -C build/image test -json -count=1 ./...' 'go run ./test/vm -quick'

# The suite first builds Kubernetes if the cache lacks it, which takes about 13 minutes.
# With KUBECONFIG=… on make's command line, it tests that cluster instead: see test/kubernetes/README.md.
REMOTE := $(if $(filter command,$(origin KUBECONFIG)),$(abspath $(KUBECONFIG)))
SUITE_OPTIONS = $(foreach o,FAMILY ROUNDS,$(if $($o),-$(shell echo $o | tr A-Z a-z)=$($o))) $(if $(REMOTE),-kubeconfig=$(REMOTE) -image=$(IMAGE_PROBE))
test-kubernetes: $(if $(REMOTE),,deps image) ## Run the tests on a real Kubernetes cluster on this machine (root), or on that of KUBECONFIG=…
	$(if $(REMOTE),BEELINE_REQUIRE=0) build/gotestsum.sh 2-test-kubernetes "go run ./test/kubernetes/suite $(SUITE_OPTIONS)"

# The second part also runs if the first one failed. The last lines are each part's total.
check: ## Run make test, then make test-kubernetes, then sum up: what CI runs (root)
	@rm -rf $(RESULTS); failed=; \
	for part in test test-kubernetes; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	for summary in $(RESULTS)/*.txt; do [ ! -e $$summary ] || { echo; echo "== $$summary"; cat $$summary; }; done; echo; \
	for part in 1-test 2-test-kubernetes; do echo "make $${part#?-}: $$(tail -n 1 $(RESULTS)/$$part.txt 2>/dev/null || echo 'did not run')"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

HOURS ?= 3
campaign: deps ## Run the random tests with other seeds than CI for HOURS (3) and print the seed of each failure (root)
	go run ./test/campaign -hours $(HOURS)

test-vm: deps ## Run all tests that meet the kernel on Linux 6.1, 6.12 and 6.18 in emulated machines, two hours
	build/gotestsum.sh test-vm 'go run ./test/vm' 'go run ./test/vm -instructions'

CLUSTER_OPTIONS = $(foreach o,NODES NETWORK TOPOLOGY FAMILY PROXY POOLS NOTE,$(if $($o),--$(shell echo $o | tr A-Z a-z)='$($o)')) \
	$(if $(VERSION_KUBERNETES),--kubernetes=$(VERSION_KUBERNETES))
cluster: USE := bench cluster
cluster: deps $(if $(filter bridge none,$(NETWORK)),,image) ## Start a real Kubernetes cluster on this machine (root), see test/kubernetes
	go build -o bin/cluster ./test/kubernetes
	bin/cluster up $(CLUSTER_OPTIONS)

cluster-down: ## End the cluster and remove everything of it
	go run ./test/kubernetes down

bench: USE := bench
bench: deps build ## Compare the networks on this machine, at most five minutes (root)
	bin/beeline-lab bench --quick --out $(BENCH_OUT) $(BENCH_FLAGS)
	@echo 'report: $(abspath $(BENCH_OUT))/report.html'

bench-services: USE := bench
bench-services: deps build ## Compare Services with the real kube-proxy, about ten minutes (root)
	bin/beeline-lab bench --suite=services --quick --out $(BENCH_OUT)-services
	@echo 'report: $(abspath $(BENCH_OUT))-services/report.html'

bench-nodeport: USE := bench
bench-nodeport: deps build ## Compare NodePorts with the real kube-proxy, about a quarter of an hour (root)
	bin/beeline-lab bench --suite=nodeport --out $(BENCH_OUT)-nodeport
	@echo 'report: $(abspath $(BENCH_OUT))-nodeport/report.html'

bench-policy: USE := bench
bench-policy: deps build ## Compare NetworkPolicies and flows, on and off, about ten minutes (root)
	bin/beeline-lab bench --suite=policy --quick --out $(BENCH_OUT)-policy
	@echo 'report: $(abspath $(BENCH_OUT))-policy/report.html'

bench-encryption: USE := bench
bench-encryption: deps build ## Compare WireGuard and IPsec, by Beeline and by hand, about ten minutes (root)
	bin/beeline-lab bench --suite=encryption --quick --out $(BENCH_OUT)-encryption
	@echo 'report: $(abspath $(BENCH_OUT))-encryption/report.html'

bench-applications: USE := bench
bench-applications: deps build ## Compare redis and HTTP at pods, ClusterIPs and NodePorts, about twenty minutes (root)
	bin/beeline-lab bench --suite=services --levels 1 --workloads redis_get,redis_set,http_keepalive,http_close --out $(BENCH_OUT)-applications
	bin/beeline-lab bench --suite=nodeport --workloads nodeport_redis_get,nodeport_redis_set,nodeport_http_keepalive,nodeport_http_close \
		--out $(BENCH_OUT)-applications-nodeport
	@echo 'reports: $(abspath $(BENCH_OUT))-applications/report.html, $(abspath $(BENCH_OUT))-applications-nodeport/report.html'

publish: build ## Put the results of the last benches into README.md and docs/measured
	build/publish-results.sh $(BENCH_OUT)

clean: ## Remove what was built
	rm -rf bin
