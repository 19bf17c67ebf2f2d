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
		/^[a-z0-9-]+:.*## / { printf "  %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
		-build-rest='MAKEFLAGS= PROGRESS_INTERVAL=30 $(SELF) --silent $(BIN)/kubectl $(BIN)/kube-controller-manager'

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

# A failure does not keep the rest from running, but is in the exit code. Two at a time: the
# end-to-end tests often wait. Their binaries come first, or they would begin last.
.PHONY: test
test: ## Runs the unit tests and an end-to-end test of every capability; says first what this machine can't run
	@hack/test-needs.sh
	-@$(MAKE) --no-print-directory binaries
	@$(MAKE) --keep-going --no-print-directory --jobs=2 TEST_LENGTH=-short test-e2e test-unit

.PHONY: test-all
test-all: ## Runs all tests, long ones included, but those in docs/making-releases.md: some hours
	@hack/test-needs.sh
	-@$(MAKE) --no-print-directory binaries $(addprefix $(BIN)/,$(OTHERS))
	@$(MAKE) --keep-going --no-print-directory --jobs=2 test-e2e test-unit test-fuzz
	@$(MAKE) --keep-going --no-print-directory test-crd-apiserver test-controller-runtime test-remote test-oldest test-definitions test-tutorial test-alerts test-etcd test-kine test-release test-dashboard test-newest-go test-nodes

.PHONY: verify
verify: verify-lint verify-boundaries verify-budgets verify-headers verify-site verify-shell verify-modules verify-codegen verify-reference verify-vulnerabilities ## Runs all checks

.PHONY: update
update: update-codegen update-reference update-format update-modules ## Fixes whatever "make verify" finds that a tool can fix

include hack/make/*.mk
