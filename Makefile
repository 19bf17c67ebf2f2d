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

# The same for everything but the race detector, so that nothing is compiled twice.
export CGO_ENABLED := 0
GOFLAGS := -trimpath
export GOFLAGS

BIN := _output/bin
LOCAL := _output/local
REMOTE := _output/remote
# Programs of Kubernetes that need not be built, such as those of setup-envtest, are taken
# from the directory that the caller names by this variable. Tests find all in BIN.
ifneq ($(CONTROLPLANE_BIN_DIR),$(CURDIR)/$(BIN))
export PREBUILT_BIN_DIR := $(CONTROLPLANE_BIN_DIR)
endif
override CONTROLPLANE_BIN_DIR := $(CURDIR)/$(BIN)
export CONTROLPLANE_BIN_DIR

# By this name, make does not take a recipe that mentions it for a part of itself
# that runs even under --dry-run.
SELF := $(MAKE)

.PHONY: help
help: ## Lists the targets
	@awk -F ':.*## ' '\
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nSuites of "make nightly SUITE=…"\n'
	@sed -n 's/^#: \([a-z0-9-]*\) /\1\t/p' hack/make/nightly.mk | while IFS=$$'\t' read -r suite what; do printf '  %-18s %s\n' "$${suite}" "$${what}"; done

##@ Every day

# Where "make run" listens, on 127.0.0.1.
KUBE_APISERVER_PORT ?= 26443
APISERVER_PORT ?= 26444
ETCD_PORT ?= 26445
KUBE_CONTROLLER_MANAGER_PORT ?= 26446

.PHONY: build
build: ## Builds the servers and the webhook
	@hack/build-binaries.sh apiserver crd-apiserver webhook

# Programs that the server can do without are built while it runs already.
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
		-build-rest='MAKEFLAGS= $(SELF) --silent $(BIN)/kubectl $(BIN)/kube-controller-manager'

.PHONY: clean
clean: ## Deletes the data of "make run" and "make run-remote"
	@for dir in $(LOCAL) $(REMOTE); do \
		if [ -e $${dir} ]; then hack/build-binaries.sh local && $(BIN)/local -dir=$${dir} -clean; fi; done

# Looks at all changes since the merge base with main, or since BASE.
.PHONY: check
check: ## Checks and tests what has changed, in two minutes, and says what else to run
	@hack/check.sh

.PHONY: smoke
smoke: ## Runs the end-to-end test RUN=TestX against the control plane of "make run"
	@CONTROLPLANE_ATTACH=$(CURDIR)/$(LOCAL) hack/smoke.sh $(RUN)

UNIT_PACKAGES = $$(go list ./cmd/... ./pkg/... ./hack/... ./artifacts ./test/upstream | grep --invert-match /pkg/generated/)
E2E_PACKAGES = ./test/kit $$(go list ./test/... | grep --invert-match --extended-regexp '/test/(upstream|tutorial|alerts|dashboard|kit|nodes(/.*)?|e2e/attacks)$$')
# RACE=true has the race detector, which needs gcc. It comes with checks of pointers that end the process where bbolt
# reads beyond a damaged page, which pkg/etcd recovers from.
RACE ?=
TEST_LENGTH = -short
TEST_UNIT = $(if $(RACE),CGO_ENABLED=1 )hack/test.sh $(if $(RACE),-race -gcflags=go.etcd.io/bbolt/...=-d=checkptr=0 )-vet=off $(TEST_LENGTH) -timeout=20m
TEST_E2E = env RERUN=true hack/test.sh -vet=off $(TEST_LENGTH) -count=1 -p=3

# A failure does not keep the rest from running, but is in the exit code. Two at a time: the
# end-to-end tests often wait. Their binaries come first, or they would begin last.
.PHONY: test test-unit test-e2e
test: ## Runs the unit tests, with RACE=true under the race detector, and an end-to-end test of every capability
	-@$(MAKE) --no-print-directory binaries
	@$(MAKE) --keep-going --no-print-directory --jobs=2 test-e2e test-unit

test-unit:
	packages="$(UNIT_PACKAGES)"; $(TEST_UNIT) $${packages}

test-e2e: binaries
	failed=0; \
		packages="$(E2E_PACKAGES)"; $(TEST_E2E) -timeout=45m $${packages} || failed=1; \
		$(TEST_E2E) -timeout=10m ./test/e2e/attacks || failed=1; \
		exit $${failed}

# Each runs hack/verify-X.sh, and so does "make verify-X".
VERIFICATIONS := $(addprefix verify-,lint budgets shell generated vulnerabilities)
.PHONY: verify verify-modules $(VERIFICATIONS)
verify: site verify-modules $(VERIFICATIONS) ## Runs all checks
$(VERIFICATIONS):
	hack/$@.sh
verify-modules:
	hack/update-modules.sh -diff

UPDATES := $(addprefix update-,codegen reference format modules)
.PHONY: update $(UPDATES)
update: $(UPDATES) ## Fixes whatever "make verify" finds that a tool can fix
$(UPDATES):
	hack/$@.sh

.PHONY: nightly
nightly: ## Runs the tests that take long: those of SUITE="kine etcd", or all that end by themselves, some hours
	@$(SELF) --keep-going --no-print-directory TEST_LENGTH= $(addprefix suite-,$(or $(SUITE),$(NIGHT)))

include hack/make/*.mk
