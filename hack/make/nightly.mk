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

# The suites of "make nightly". A line "#: NAME what it does" is for "make help".

# Those that "make nightly" runs without SUITE. The others take as long as one likes.
NIGHT := long newest-go fuzz-objects crd-apiserver controller-runtime remote oldest definitions tutorial alerts etcd kine \
	release others dashboard nodes
CAMPAIGN = go test -vet=off -count=1 -v -timeout=12h

.PHONY: $(addprefix suite-,$(NIGHT))

#: long all tests of "make test", and the long ones, with the race detector
suite-long:
	$(SELF) --keep-going --no-print-directory test TEST_LENGTH= RACE=true

#: newest-go builds everything, and runs the unit tests, with the newest Go that can be downloaded
suite-newest-go:
	export GOTOOLCHAIN="$$(go list -m toolchain@latest | cut -d ' ' -f 2)"; go version; go build ./...; \
		packages="$(UNIT_PACKAGES)"; $(TEST_UNIT) $${packages}

#: fuzz-objects sends 10 000 objects of each kind through each version and encoding
suite-fuzz-objects:
	FUZZ_ITERATIONS=10000 hack/test.sh -vet=off -count=1 -timeout=20m -run='^TestRoundTrip$$' ./pkg/apis/restaurant/install

#: crd-apiserver the tests of custom resources again, with crd-apiserver
suite-crd-apiserver: binaries
	E2E_CRD_APISERVER=true $(TEST_E2E) -timeout=10m ./test/e2e/crd

OTHERS := sample-apiserver metrics-server custom-metrics-adapter acme-webhook

#: others examines API servers of other projects; the doctor finds nothing
suite-others: binaries $(addprefix $(BIN)/,$(OTHERS))
	$(TEST_E2E) -timeout=30m ./test/e2e/others

#: controller-runtime a controller built with controller-runtime
suite-controller-runtime: binaries
	go -C test/controllerruntime test -vet=off -count=1 -timeout=10m ./...

#: definitions imports definitions of other projects, and compares their servers with kube-apiserver
suite-definitions: binaries
	DEFINITIONS=. hack/test.sh -vet=off -count=1 -timeout=120m ./test/kit/definitions

#: remote the core of the API's tests through SSH, as root
suite-remote: binaries
	E2E_BASTION=true $(TEST_E2E) -timeout=10m ./test/e2e/api

#: tutorial executes docs/tutorial.md, command by command
suite-tutorial: binaries
	$(TEST_E2E) -timeout=60m ./test/tutorial

#: alerts has every alert fire, and not fire
suite-alerts: $(BIN)/promtool $(BIN)/kubectl
	$(TEST_E2E) ./test/alerts

# The releases of Kubernetes that the server is tested with.
VERSIONS ?= 1.34 1.35 1.36 1.37

#: skew tests the server with each of VERSIONS="1.34 1.35 1.36 1.37", and writes docs/compatibility.md
suite-skew: binaries
	go run ./test/skew $(VERSIONS)

#: oldest the tests of admission and of the doctor with the oldest Kubernetes that is supported
suite-oldest: binaries
	CONTROLPLANE_KUBERNETES_VERSION=$(firstword $(VERSIONS)) $(TEST_E2E) -timeout=30m ./test/e2e/admission ./test/e2e/doctor

#: release makes a release twice for this platform, and compares the two
suite-release: binaries
	RELEASE_TWICE=true $(TEST_E2E) -timeout=30m ./test/e2e/release

#: kine the API's tests with PostgreSQL behind kine instead of etcd
suite-kine: binaries $(BIN)/kine
	hack/with-kine.sh $(TEST_E2E) -timeout=30m ./test/e2e/api

#: bench-kine measures writes and watches with etcd, and with PostgreSQL behind kine
suite-bench-kine: binaries $(BIN)/kine
	go test -vet=off -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api
	hack/with-kine.sh go test -vet=off -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api

#: etcd the tests of the storage with older releases of etcd
suite-etcd: binaries $(BIN)/etcd-3.5 $(BIN)/etcd-3.6
	@for version in 3.5 3.6; do \
		programs=$(CURDIR)/_output/with-etcd-$${version}; \
		mkdir -p $${programs} && ln -sf $(CURDIR)/$(BIN)/* $${programs} && ln -sf $(CURDIR)/$(BIN)/etcd-$${version} $${programs}/etcd; \
		echo "etcd $${version}:"; CONTROLPLANE_BIN_DIR=$${programs} $(TEST_E2E) -timeout=20m ./test/e2e/storage || exit 1; \
	done

OVERLAYS ?= standalone|sizes|ha|external-etcd|helm|crd-apiserver|types
BUSYBOX = $(if $(findstring ha,$(OVERLAYS)),busybox)

#: nodes does what operators do, on three nodes, as root: OVERLAYS="standalone|sizes|ha|external-etcd|helm|crd-apiserver|types"
suite-nodes:
	@$(SELF) --no-print-directory binaries plugins $(addprefix $(BIN)/,$(NODE_BINARIES))
	@for image in pause etcd rclone; do \
		hack/build-image.sh $${image} _output/nodes/$${image}.tar; \
	done
	@for version in v0.37.0 v0.37.1; do \
		VERSION=$${version} DIRECTORY=_output/nodes hack/build-binaries.sh apiserver; \
		VERSION=$${version} BINARIES=$$(go env GOARCH)=_output/nodes hack/build-image.sh apiserver _output/nodes/$${version}.tar; \
	done
	@for image in crd-apiserver webhook; do hack/build-image.sh $${image} _output/nodes/$${image}.tar; done
	$(if $(BUSYBOX),@BINARIES=$$(go env GOARCH)=/bin hack/build-image.sh busybox _output/nodes/busybox.tar)
	OVERLAYS='$(OVERLAYS)' $(if $(CI),$(TEST_E2E),$(CAMPAIGN)) -timeout=120m ./test/nodes

#: dashboard fails if a panel of the Grafana dashboard shows nothing
suite-dashboard:
	@$(SELF) --no-print-directory build $(addprefix $(BIN)/,etcd kube-apiserver prometheus)
	$(TEST_E2E) -timeout=10m ./test/dashboard

FAULTS ?= 100
FAULTS_SEED ?= $(shell date +%s)

#: faults breaks servers, etcd and networks FAULTS=100 times under load
suite-faults: binaries
	FAULTS=$(FAULTS) FAULTS_SEED=$(FAULTS_SEED) $(CAMPAIGN) ./test/e2e/faults

OUTAGE ?= 240s

#: outages takes etcd away for OUTAGE=240s, in four ways
suite-outages: binaries
	OUTAGE=$(OUTAGE) $(CAMPAIGN) -run='^TestOutages$$' ./test/e2e/faults

ROLLINGS ?= 20

#: rollings replaces 2 and 3 replicas ROLLINGS=20 times, at 200 requests/s
suite-rollings: binaries
	ROLLINGS=$(ROLLINGS) $(CAMPAIGN) -run='^TestRollingRestart$$' ./test/e2e/rollout

OBJECTS ?= 100000

#: migration moves OBJECTS=100000 custom resources there and back while clients write
suite-migration: binaries
	MIGRATION_OBJECTS=$(OBJECTS) $(CAMPAIGN) -run='^TestManyObjects$$' ./test/e2e/migration

KILLS ?= 100

#: migration-kills moves them KILLS=100 times while everything is killed at random; MIGRATION_SEED repeats that
suite-migration-kills: binaries
	MIGRATION_KILLS=$(KILLS) $(CAMPAIGN) -run='^TestKilledServers$$' ./test/e2e/migration

ATTACK_SECONDS ?= 60

#: attacks twelve attacks on the server, crd-apiserver and the webhook, ATTACK_SECONDS=60 each
suite-attacks: binaries
	ATTACK_SECONDS=$(ATTACK_SECONDS) $(CAMPAIGN) ./test/e2e/attacks
	ATTACKED=crd-apiserver ATTACK_SECONDS=$(ATTACK_SECONDS) $(CAMPAIGN) ./test/e2e/attacks

FUZZ_TIME ?= 5m

#: fuzz looks for bodies that cost more than their bounds, FUZZ_TIME=5m for each target
suite-fuzz:
	for package in ./pkg/apiserver/limits ./pkg/registry/restaurant ./pkg/webhook; do \
		for target in $$(go test -vet=off -list='^Fuzz' $${package} | grep '^Fuzz'); do \
			go test -vet=off -run='^$$' -fuzz="^$${target}\$$" -fuzztime=$(FUZZ_TIME) -fuzzminimizetime=50x $${package}; \
		done; \
	done

ROUNDS ?= 20
STRESSED ?= $(UNIT_PACKAGES)

#: stress runs tests ROUNDS=20 times at once, those of STRESSED="./pkg/etcd ./test/e2e/api"
suite-stress: binaries $(BIN)/stress
	packages="$(STRESSED)"; go test -vet=off -count=1 -timeout=0 -exec='$(CURDIR)/$(BIN)/stress -timeout=60m -p=$(ROUNDS) -count=$(ROUNDS)' -p=1 $${packages}
