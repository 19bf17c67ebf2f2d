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

##@ Test

# The race detector covers all code that runs inside the test's own process.
# The processes that ./test starts are built without it. Its packages are always
# run, as Go's cache does not know which binaries they used. They run three at a time:
# each has its own control plane, and often waits for it. The longest comes first.
# Those left out have a target of their own: they need other programs, or the machine to themselves.
# test/tutorial fills a module cache of its own. test/upstream needs no server, and is a unit test.
UNIT_PACKAGES = $$(go list ./cmd/... ./pkg/... ./hack/... ./artifacts ./test/upstream | grep --invert-match /pkg/generated/)
E2E_PACKAGES = ./test/kit $$(go list ./test/... | grep --invert-match --extended-regexp '/test/(upstream|tutorial|alerts|dashboard|kit|nodes(/.*)?|e2e/attacks)$$')
# -short leaves out what the tests call long.
TEST_LENGTH ?=
TEST_UNIT = CGO_ENABLED=1 hack/test.sh -race -vet=off $(TEST_LENGTH)
TEST_E2E = env RERUN=true hack/test.sh -vet=off $(TEST_LENGTH) -count=1 -p=3

.PHONY: test-unit
test-unit: ## Runs the tests that need nothing but Go and gcc, with the race detector
	packages="$(UNIT_PACKAGES)"; $(TEST_UNIT) -timeout=20m $${packages}

.PHONY: test-newest-go
test-newest-go: ## Builds everything and runs the unit tests with the newest Go that can be downloaded
	export GOTOOLCHAIN="$$(go list -m toolchain@latest | cut -d ' ' -f 2)"; go version; go build ./...; \
		packages="$(UNIT_PACKAGES)"; $(TEST_UNIT) -timeout=20m $${packages}

.PHONY: test-fuzz
test-fuzz: ## Sends 10 000 objects of each kind through each version and encoding
	FUZZ_ITERATIONS=10000 hack/test.sh -vet=off -count=1 -timeout=20m -run='^TestRoundTrip$$' ./pkg/apis/restaurant/install

# The attacks have the machine to themselves: how long others wait is what they are about.
.PHONY: test-e2e
test-e2e: binaries ## Runs the tests against a real control plane
	failed=0; \
		packages="$(E2E_PACKAGES)"; $(TEST_E2E) -timeout=45m $${packages} || failed=1; \
		$(TEST_E2E) -timeout=10m ./test/e2e/attacks || failed=1; \
		exit $${failed}

.PHONY: test-crd-apiserver
test-crd-apiserver: binaries ## Runs the tests of custom resources again, with crd-apiserver
	E2E_CRD_APISERVER=true $(TEST_E2E) -timeout=10m ./test/e2e/crd

OTHERS := sample-apiserver metrics-server custom-metrics-adapter acme-webhook

.PHONY: test-others
test-others: binaries $(addprefix $(BIN)/,$(OTHERS)) ## Examines API servers of other projects, and compares what is found with what the documentation says; the doctor finds nothing
	$(TEST_E2E) -timeout=30m ./test/e2e/others

.PHONY: test-controller-runtime
test-controller-runtime: binaries ## Runs a controller built with controller-runtime
	go -C test/controllerruntime test -vet=off -count=1 -timeout=10m ./...

.PHONY: test-definitions
test-definitions: binaries ## Imports definitions of other projects, and compares the servers of their types with kube-apiserver
	DEFINITIONS=. hack/test.sh -vet=off -count=1 -timeout=120m ./test/kit/definitions

.PHONY: test-remote
test-remote: binaries ## Runs the core of the API's tests through SSH, as root
	E2E_BASTION=true $(TEST_E2E) -timeout=10m ./test/e2e/api

.PHONY: test-tutorial
test-tutorial: binaries ## Executes docs/tutorial.md, command by command
	$(TEST_E2E) -timeout=60m ./test/tutorial

.PHONY: test-alerts
test-alerts: $(BIN)/promtool $(BIN)/kubectl ## Has every alert fire, and not fire, with time series of test/alerts/testdata
	$(TEST_E2E) ./test/alerts

VERSIONS ?= 1.34 1.35 1.36 1.37

.PHONY: test-skew
test-skew: binaries ## Builds each of VERSIONS="1.34 1.35 1.36 1.37" of Kubernetes, tests the server with it, and writes docs/compatibility.md
	go run ./test/skew $(VERSIONS)

.PHONY: test-oldest
test-oldest: binaries ## Runs the tests of admission and of the doctor with the oldest release of Kubernetes that is supported
	CONTROLPLANE_KUBERNETES_VERSION=$(firstword $(VERSIONS)) $(TEST_E2E) -timeout=30m ./test/e2e/admission ./test/e2e/doctor

.PHONY: test-release
test-release: binaries ## Makes a release twice for this platform, in two directories, and compares the two
	RELEASE_TWICE=true $(TEST_E2E) -timeout=30m ./test/e2e/release

.PHONY: test-kine
test-kine: binaries $(BIN)/kine ## Runs the API's tests with PostgreSQL behind kine instead of etcd
	hack/with-kine.sh $(TEST_E2E) -timeout=30m ./test/e2e/api

# Tests take etcd from the directory of programs.
.PHONY: test-etcd
test-etcd: binaries $(BIN)/etcd-3.5 $(BIN)/etcd-3.6 ## Runs the tests of the storage with older releases of etcd
	@for version in 3.5 3.6; do \
		programs=$(CURDIR)/_output/with-etcd-$${version}; \
		mkdir -p $${programs} && ln -sf $(CURDIR)/$(BIN)/* $${programs} && ln -sf $(CURDIR)/$(BIN)/etcd-$${version} $${programs}/etcd; \
		echo "etcd $${version}:"; CONTROLPLANE_BIN_DIR=$${programs} $(TEST_E2E) -timeout=20m ./test/e2e/storage || exit 1; \
	done

OVERLAYS ?= standalone|sizes|ha|external-etcd|helm|crd-apiserver|types
BUSYBOX = $(if $(findstring ha,$(OVERLAYS)),busybox)

# The server's image is built twice: an upgrade needs two that differ in more than their names.
.PHONY: test-nodes
test-nodes: ## Does what the documentation says to operators on three nodes with containerd and kubelets, as root: OVERLAYS="standalone|sizes|ha|external-etcd|helm|crd-apiserver|types"
	@hack/test-needs.sh root containerd runc iptables nft conntrack jq unshare nsenter ip /usr/lib/cni/ptp $(BUSYBOX)
	@$(MAKE) --no-print-directory binaries plugins $(addprefix $(BIN)/,$(NODE_BINARIES))
	@for image in pause etcd rclone; do \
		hack/build-image.sh $${image} _output/nodes/$${image}.tar; \
	done
	@for version in v0.37.0 v0.37.1; do \
		VERSION=$${version} DIRECTORY=_output/nodes hack/build-binaries.sh apiserver; \
		VERSION=$${version} BINARIES=$$(go env GOARCH)=_output/nodes hack/build-image.sh apiserver _output/nodes/$${version}.tar; \
	done
	@for image in crd-apiserver webhook; do hack/build-image.sh $${image} _output/nodes/$${image}.tar; done
	$(if $(BUSYBOX),@BINARIES=$$(go env GOARCH)=/bin hack/build-image.sh busybox _output/nodes/busybox.tar)
	OVERLAYS='$(OVERLAYS)' $(if $(CI),$(TEST_E2E),$(BY_HAND)) -timeout=120m ./test/nodes

.PHONY: test-dashboard
test-dashboard: ## Fails if a panel of the Grafana dashboard shows nothing of two servers that clients use
	@$(MAKE) --no-print-directory build $(addprefix $(BIN)/,etcd kube-apiserver prometheus)
	$(TEST_E2E) -timeout=10m ./test/dashboard
