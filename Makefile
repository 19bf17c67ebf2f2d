# Copyright The Restaurant API Server Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help
help: ## Lists the targets
	@awk -F ':.*## ' '\
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build and run

BIN := _output/bin
# Where tests look for programs.
export CONTROLPLANE_BIN_DIR := $(CURDIR)/$(BIN)
LOCAL := _output/local
REMOTE := _output/remote
KUBERNETES_BINARIES := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl
KONNECTIVITY_BINARIES := proxy-server proxy-agent
NODE_BINARIES := etcdctl kubelet kube-proxy coredns pause metrics-server

# Where "make run" listens, on 127.0.0.1.
KUBE_APISERVER_PORT ?= 26443
APISERVER_PORT ?= 26444
ETCD_PORT ?= 26445
KUBE_CONTROLLER_MANAGER_PORT ?= 26446

.PHONY: build
build: ## Builds the servers and the webhook
	@hack/build-binaries.sh apiserver crd-apiserver webhook

.PHONY: image
image: build ## Builds images of the servers into archives, reproducibly
	@hack/build-image.sh apiserver
	@hack/build-image.sh crd-apiserver

.PHONY: chart
chart: $(BIN)/kubectl ## Builds the Helm chart into a directory: VERSION, REGISTRY
	@hack/build-chart.sh

.PHONY: release
release: $(BIN)/kubectl ## Makes everything that a release has, reproducibly: VERSION=v0.37.0, REGISTRY, PLATFORMS and SIGNING_KEY
	@hack/release.sh $(VERSION)

.PHONY: binaries
binaries: build $(addprefix $(BIN)/,$(KUBERNETES_BINARIES) $(KONNECTIVITY_BINARIES)) ## Builds the servers, the webhook and what the tests run with them

$(addprefix $(BIN)/,$(KUBERNETES_BINARIES) etcdctl kubelet kube-proxy sample-apiserver): hack/build-binaries.sh test/controlplane/binaries/kubernetes.mod test/controlplane/binaries/kubernetes.sum
	@hack/build-binaries.sh $(@F)

$(addprefix $(BIN)/,$(KONNECTIVITY_BINARIES)): hack/build-binaries.sh hack/konnectivity/go.mod hack/konnectivity/go.sum
	@hack/build-binaries.sh $(@F)

# By this name, make does not take a recipe that mentions it for a part of itself
# that runs even under --dry-run.
SELF := $(MAKE)

# What the server can do without is built while it runs already.
.PHONY: run
run: $(BIN)/etcd $(BIN)/kube-apiserver ## Runs a control plane with the server until Ctrl-C
	@hack/build-binaries.sh apiserver local
	@exec $(BIN)/local -dir=$(LOCAL) -bin=$(BIN) \
		-etcd-port=$(ETCD_PORT) \
		-kube-apiserver-port=$(KUBE_APISERVER_PORT) \
		-kube-controller-manager-port=$(KUBE_CONTROLLER_MANAGER_PORT) \
		-apiserver-port=$(APISERVER_PORT) \
		-next='kubectl apply -f artifacts/examples/1-toppings.yaml' \
		-next='kubectl apply -f artifacts/examples/2-pizzas.yaml' \
		-next='kubectl get pizzas --output=wide' \
		-next='kubectl get pizzas.v1alpha1.restaurant.programming-kubernetes.info --output=yaml' \
		-next='kubectl explain pizza.spec --recursive' \
		-build-rest='MAKEFLAGS= PROGRESS_INTERVAL=30 $(SELF) --silent $(BIN)/kubectl $(BIN)/kube-controller-manager'

.PHONY: run-remote
run-remote: binaries ## Runs the same behind a bastion with sshd, as root, until Ctrl-C
	@hack/build-binaries.sh local
	@exec $(BIN)/local -bastion -dir=$(REMOTE) -bin=$(BIN)

.PHONY: clean
clean: ## Deletes the data of "make run" and "make run-remote"
	@for dir in $(LOCAL) $(REMOTE); do \
		if [ -e $${dir} ]; then hack/build-binaries.sh local && $(BIN)/local -dir=$${dir} -clean; fi; done

##@ Test

# The race detector covers all code that runs inside the test's own process.
# What ./test starts are processes built without it; their packages are always
# run, as Go's cache does not know which binaries they used, and two at a time:
# each has its own control plane, and often waits for it.
UNIT_PACKAGES = $$(go list ./cmd/... ./pkg/... ./hack/... ./test/upstream | grep --invert-match /pkg/generated/)
E2E_PACKAGES = $$(go list ./test/... | grep --invert-match --extended-regexp '/test/(upstream|tutorial|alerts|dashboard|nodes(/.*)?|e2e/(attacks|remote|konnectivity))$$')
TEST_UNIT = CGO_ENABLED=1 go run ./hack/testrun -race
TEST_E2E = CGO_ENABLED=0 go run ./hack/testrun -trimpath -count=1 -p=2

# What fails does not keep the rest from running, but is in the exit code. Two at a time:
# the end-to-end tests often wait. Their binaries come first, or they would begin last.
.PHONY: test
test: ## Runs all tests; says first which this machine can't run, and for want of what
	@hack/test-needs.sh
	-@$(MAKE) --no-print-directory binaries
	@$(MAKE) --keep-going --no-print-directory --jobs=2 test-e2e test-unit test-fuzz test-remote

.PHONY: test-unit
test-unit: ## Runs the tests that need nothing but Go and gcc, with the race detector
	packages="$(UNIT_PACKAGES)"; $(TEST_UNIT) -timeout=20m $${packages}

.PHONY: test-fuzz
test-fuzz: ## Sends 10 000 objects of each kind through each version and encoding
	CGO_ENABLED=0 FUZZ_ITERATIONS=10000 go run ./hack/testrun -trimpath -count=1 -timeout=20m -run='^TestRoundTrip$$' ./pkg/apis/restaurant/install

# The tests of a package count for what is below it: pkg/apiserver with all its packages,
# the others without those of the groups.
.PHONY: cover
cover: ## Prints how much of the generic packages their own tests cover
	@mkdir -p _output/cover
	@for subject in apiserver/... registry admission; do \
		profile=_output/cover/$${subject%%/*}; \
		CGO_ENABLED=0 go test -trimpath -count=1 -coverpkg=./pkg/$${subject} -coverprofile=$${profile} ./pkg/$${subject} >$${profile}.log || { cat $${profile}.log; exit 1; }; \
		printf 'pkg/%-14s %s\n' "$${subject}" "$$(go tool cover -func=$${profile} | awk 'END { print $$3 }')"; \
	done

# Go fuzzes one function of one package at a time. What it finds is kept in testdata, with some
# inputs to begin with, and is a test case of "make test-unit" from then on. To make each new input
# as small as it can be, up to a minute for each, would take most of the time.
FUZZ_TIME ?= 5m

.PHONY: fuzz
fuzz: ## Looks for bodies that cost more than their bounds, or that the server fails at, FUZZ_TIME for each target
	for package in ./pkg/elements ./pkg/quantities ./pkg/registry/restaurant ./pkg/webhook; do \
		for target in $$(go test -list='^Fuzz' $${package} | grep '^Fuzz'); do \
			go test -run='^$$' -fuzz="^$${target}\$$" -fuzztime=$(FUZZ_TIME) -fuzzminimizetime=50x $${package}; \
			hack/keep-corpus.sh $${package} $${target}; \
		done; \
	done

.PHONY: test-e2e
test-e2e: binaries ## Runs the tests against a real control plane
	failed=0; \
		packages="$(E2E_PACKAGES)"; $(TEST_E2E) -timeout=20m $${packages} || failed=1; \
		CGO_ENABLED=0 go -C test/controllerruntime test -trimpath -count=1 -timeout=10m ./... || failed=1; \
		E2E_CRD_APISERVER=true $(TEST_E2E) -timeout=10m ./test/e2e/crd || failed=1; \
		$(TEST_E2E) -timeout=10m ./test/e2e/attacks || failed=1; \
		exit $${failed}

# The second command runs the tests that framework.AlsoRemote marks.
.PHONY: test-tutorial
test-tutorial: binaries ## Executes docs/tutorial.md, command by command
	$(TEST_E2E) -timeout=60m ./test/tutorial

.PHONY: test-alerts
test-alerts: $(BIN)/promtool ## Has every alert fire, and not fire, with time series of test/alerts/testdata
	$(TEST_E2E) ./test/alerts

.PHONY: test-remote
test-remote: binaries ## Runs the tests through proxies, SSH and Konnectivity, as root, and the core of the others through SSH
	failed=0; \
		$(TEST_E2E) -timeout=10m ./test/e2e/remote ./test/e2e/konnectivity || failed=1; \
		E2E_BASTION=true $(TEST_E2E) -timeout=10m ./test/e2e/api || failed=1; \
		exit $${failed}

VERSIONS ?= 1.34 1.35 1.36 1.37

.PHONY: test-skew
test-skew: binaries ## Builds each of VERSIONS="1.34 1.35 1.36 1.37" of Kubernetes, tests the server with it, and writes docs/compatibility.md
	go run ./test/skew $(VERSIONS)

.PHONY: test-oldest
test-oldest: binaries ## Runs the tests of admission and of the doctor with the oldest release of Kubernetes that is supported
	CONTROLPLANE_KUBERNETES_VERSION=$(firstword $(VERSIONS)) $(TEST_E2E) -timeout=30m ./test/e2e/admission ./test/e2e/doctor

FAULTS ?= 100
FAULTS_SEED ?= $(shell date +%s)

.PHONY: test-faults
test-faults: binaries ## Breaks servers, etcd and networks FAULTS=100 times under load, and checks what clients were told
	FAULTS=$(FAULTS) FAULTS_SEED=$(FAULTS_SEED) CGO_ENABLED=0 go test -trimpath -count=1 -v -timeout=12h ./test/e2e/faults

SOAK ?= 30m
STOPS ?= 1000
OUTAGE ?= 240s
ROLLINGS ?= 20
BY_HAND = CGO_ENABLED=0 go test -trimpath -count=1 -v -timeout=12h

.PHONY: soak
soak: binaries ## Uses two replicas for SOAK=30m, and fails if their memory, goroutines or files grow
	SOAK=$(SOAK) $(BY_HAND) -run='^TestSoak$$' ./test/e2e/faults

.PHONY: test-stops
test-stops: binaries ## Stops servers STOPS=1000 times at any moment, and fails if one takes 6 s more than its delay
	STOPS=$(STOPS) $(BY_HAND) -run='^TestStops$$' ./test/e2e/faults

.PHONY: test-outages
test-outages: binaries ## Takes etcd away for OUTAGE=240s, in four ways, and fails if writes come back later than after 2 s
	OUTAGE=$(OUTAGE) $(BY_HAND) -run='^TestOutages$$' ./test/e2e/faults

.PHONY: test-rollings
test-rollings: binaries ## Replaces 2 and 3 replicas ROLLINGS=20 times, routed by kube-apiserver or by a balancer, at 200 requests/s
	ROLLINGS=$(ROLLINGS) $(BY_HAND) -run='^TestRollingRestart$$' ./test/e2e/rollout

OBJECTS ?= 100000

.PHONY: test-migration
test-migration: binaries ## Moves OBJECTS=100000 custom resources there and back while clients write 50 times a second, and prints how long writes waited
	CGO_ENABLED=0 MIGRATION_OBJECTS=$(OBJECTS) go test -trimpath -count=1 -v -timeout=6h -run='^TestManyObjects$$' ./test/e2e/migration

KILLS ?= 100

.PHONY: test-migration-kills
test-migration-kills: binaries ## Moves custom resources there and back KILLS=100 times, while clients write and everything is killed at random; MIGRATION_SEED repeats that
	CGO_ENABLED=0 MIGRATION_KILLS=$(KILLS) go test -trimpath -count=1 -v -timeout=12h -run='^TestKilledServers$$' ./test/e2e/migration

ATTACK_SECONDS ?= 60

.PHONY: test-attacks
test-attacks: binaries ## Attacks a server that may have 512 MiB, ATTACK_SECONDS=60 each, and prints what became of it and of others
	CGO_ENABLED=0 ATTACK_SECONDS=$(ATTACK_SECONDS) go test -trimpath -count=1 -v -timeout=4h ./test/e2e/attacks

REQUESTS ?= 1000000
SEED ?= $(shell date +%s)

.PHONY: fuzz-requests
fuzz-requests: binaries ## Sends REQUESTS=1000000 mutated requests to a server, and keeps those that are answered like none before: SEED
	CGO_ENABLED=0 REQUESTS=$(REQUESTS) SEED=$(SEED) CORPUS=write go test -trimpath -count=1 -v -timeout=12h -run=TestRequests ./test/e2e/fuzz

.PHONY: test-kine
test-kine: binaries $(BIN)/kine ## Runs the API's tests with PostgreSQL behind kine instead of etcd
	hack/with-kine.sh env $(TEST_E2E) -timeout=30m ./test/e2e/api

.PHONY: bench-kine
bench-kine: binaries $(BIN)/kine ## Measures writes and watches with etcd, and with PostgreSQL behind kine
	go test -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api
	hack/with-kine.sh go test -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api

$(BIN)/kine: hack/tools/kine/go.mod hack/tools/kine/go.sum
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -o $(CURDIR)/$@ github.com/k3s-io/kine

OVERLAYS ?= standalone|sizes|ha|external-etcd|helm|crd-apiserver|types
# What only one overlay is tested with takes minutes to build.
MONITORING = $(if $(findstring ha,$(OVERLAYS)),prometheus prometheus-operator prometheus-config-reloader)

# The server's image is built twice: an upgrade needs two that differ in more than their names.
.PHONY: test-nodes
test-nodes: ## Does what the documentation says to operators on three nodes with containerd and kubelets, as root: OVERLAYS="standalone|sizes|ha|external-etcd|helm|crd-apiserver|types"
	@hack/test-needs.sh root buildah containerd runc iptables nft conntrack jq unshare nsenter /usr/lib/cni/ptp
	@$(MAKE) --no-print-directory binaries $(addprefix $(BIN)/,$(NODE_BINARIES) $(MONITORING))
	@for image in pause etcd kube-scheduler metrics-server $(MONITORING); do \
		DOCKERFILE=test/nodes/Dockerfile hack/build-image.sh $${image} _output/nodes/$${image}.tar; \
	done
	@for version in v1.0.0 v1.0.1; do \
		VERSION=$${version} DIRECTORY=_output/nodes hack/build-binaries.sh apiserver; \
		VERSION=$${version} BINARIES=$$(go env GOARCH)=_output/nodes hack/build-image.sh apiserver _output/nodes/$${version}.tar; \
	done
	@for image in crd-apiserver webhook; do hack/build-image.sh $${image} _output/nodes/$${image}.tar; done
	$(if $(MONITORING),@$(MAKE) --no-print-directory test-alerts)
	$(BY_HAND) -timeout=60m -run='^Test/^($(OVERLAYS))$$' ./test/nodes

$(BIN)/coredns: hack/tools/coredns/go.mod hack/tools/coredns/go.sum hack/tools/coredns/main.go
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -buildvcs=false -o $(CURDIR)/$@ .

$(BIN)/metrics-server: hack/tools/metrics-server/go.mod hack/tools/metrics-server/go.sum
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -o $(CURDIR)/$@ sigs.k8s.io/metrics-server/cmd/metrics-server

# Of what finds targets, only Kubernetes is wanted.
$(BIN)/prometheus $(BIN)/promtool: hack/tools/prometheus/go.mod hack/tools/prometheus/go.sum
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -tags=remove_all_sd,enable_kubernetes_sd -o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/$(@F)

$(addprefix $(BIN)/prometheus-,operator config-reloader): hack/tools/prometheus-operator/go.mod hack/tools/prometheus-operator/go.sum
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -o $(CURDIR)/$@ github.com/prometheus-operator/prometheus-operator/cmd/$(patsubst prometheus-operator,operator,$(@F))

$(BIN)/pause: test/nodes/pause/main.go
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' -o $@ ./$(<D)

LOAD ?= 4m
DASHBOARD := _output/dashboard

.PHONY: test-dashboard
test-dashboard: ## Draws the Grafana dashboard in Chromium after LOAD=4m of ordinary requests, and fails if a panel is empty
	@hack/test-needs.sh chromium node npm
	@$(MAKE) --no-print-directory build $(addprefix $(BIN)/,etcd kube-apiserver prometheus) $(DASHBOARD)/node_modules/.package-lock.json
	@cp hack/dashboard/* $(DASHBOARD)
	@npm --prefix=$(DASHBOARD) --silent run build
	LOAD=$(LOAD) $(BY_HAND) ./test/dashboard

# Not beside the sources, where Go would look for packages in it.
$(DASHBOARD)/node_modules/.package-lock.json: hack/dashboard/package.json hack/dashboard/package-lock.json
	@mkdir -p $(DASHBOARD)
	@cp $^ $(DASHBOARD)
	@npm --prefix=$(DASHBOARD) ci --ignore-scripts --no-audit --no-fund

.PHONY: test-release
test-release: binaries ## Makes a release twice for this platform, and compares the two
	RELEASE_TWICE=true $(TEST_E2E) -timeout=30m ./test/e2e/release

# All rounds of a package run at once: each is the load of the others.
# Without the race detector, which "make test" has: what is looked for here depends on time.
ROUNDS ?= 20
E2E_ROUNDS ?= 5
STRESS = -p=1 -count=1 -timeout=0 -exec='$(CURDIR)/$(BIN)/stress -timeout=60m

.PHONY: stress
stress: ## Runs tests ROUNDS=20 or E2E_ROUNDS=5 times at once: UNIT_PACKAGES and E2E_PACKAGES
	@$(MAKE) --keep-going --no-print-directory $(if $(filter-out 0,$(ROUNDS)),stress-unit) $(if $(filter-out 0,$(E2E_ROUNDS)),stress-e2e)

.PHONY: stress-unit
stress-unit: $(BIN)/stress
	packages="$(UNIT_PACKAGES)"; CGO_ENABLED=0 go test $(STRESS) -p=$(ROUNDS) -count=$(ROUNDS)' $${packages}

.PHONY: stress-e2e
stress-e2e: binaries $(BIN)/stress
	packages="$(E2E_PACKAGES)"; CGO_ENABLED=0 go test -trimpath $(STRESS) -p=$(E2E_ROUNDS) -count=$(E2E_ROUNDS)' $${packages}

$(BIN)/stress: hack/tools/stress/go.mod hack/tools/stress/go.sum
	@CGO_ENABLED=0 go -C $(<D) build -trimpath -o $(CURDIR)/$@ golang.org/x/tools/cmd/stress

# On a machine that does nothing else. What is measured beside others takes half an hour.
BENCH_OUT ?= docs/benchmarks/$(shell date -u +%F).json

.PHONY: bench
bench: binaries $(BIN)/sample-apiserver ## Measures the server by itself, and beside CRDs and others; samples in BENCH_OUT
	go run ./test/bench
	go test -run='^$$' -bench='^BenchmarkStart$$' -benchtime=10x ./pkg/apiserver/testing 2>/dev/null
	go run ./test/bench/comparison -out=$(BENCH_OUT)
	go run ./test/bench/comparison -contenders=crd,pizzas -identities=user -controllers -objects=0 -watches=0 -reviews=0 -growth=

.PHONY: bench-compare
bench-compare: binaries ## Compares what requests cost this build of the server and the one of the commit BASE
	@hack/build-base.sh $(BASE)
	go run ./test/bench/comparison -base=_output/base/apiserver -rounds=9

.PHONY: profile
profile: binaries ## Writes profiles of the server at each verb and way to list to _output/profiles
	go run ./test/bench/comparison -contenders=pizzas -identities=user -profiles=_output/profiles

##@ Verify

.PHONY: verify
verify: verify-lint verify-boundaries verify-headers verify-figures verify-translations verify-shell verify-modules verify-codegen verify-vulnerabilities test-hack ## Runs all checks

.PHONY: test-hack
test-hack: ## Shows that the checks of "make verify" fail when they should
	hack/test-verify.sh

.PHONY: verify-lint
verify-lint: ## Checks formatting, go vet and static analysis
	hack/verify-lint.sh

.PHONY: verify-boundaries
verify-boundaries: ## Checks that imports point one way
	hack/verify-boundaries.sh

.PHONY: verify-headers
verify-headers: ## Checks that every source file has the licence header
	hack/verify-headers.sh

.PHONY: verify-figures
verify-figures: ## Checks that figures match their sources
	hack/verify-figures.sh

.PHONY: verify-translations
verify-translations: ## Checks that docs/zh is in step with what it translates
	hack/verify-translations.sh

.PHONY: verify-shell
verify-shell: ## Checks the shell scripts
	hack/verify-shell.sh

.PHONY: verify-modules
verify-modules: ## Checks that every go.mod and go.sum is tidy
	hack/verify-modules.sh

.PHONY: verify-codegen
verify-codegen: ## Checks that generated code is fresh
	hack/verify-codegen.sh

.PHONY: verify-vulnerabilities
verify-vulnerabilities: ## Checks for known vulnerabilities, where their database can be reached
	hack/verify-vulnerabilities.sh

##@ Update

.PHONY: update
update: update-codegen update-format update-modules ## Fixes whatever "make verify" finds that a tool can fix

.PHONY: update-codegen
update-codegen: ## Generates code
	hack/update-codegen.sh

.PHONY: update-format
update-format: ## Formats Go code and shell scripts
	hack/update-format.sh

.PHONY: update-modules
update-modules: ## Tidies every go.mod and go.sum
	hack/update-modules.sh

.PHONY: update-figures
update-figures: ## Draws the figures of the documentation, with graphviz
	hack/update-figures.sh
