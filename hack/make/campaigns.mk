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

##@ Test by hand: campaigns that take as long as one likes

FAULTS ?= 100
FAULTS_SEED ?= $(shell date +%s)

.PHONY: test-faults
test-faults: binaries ## Breaks servers, etcd and networks FAULTS=100 times under load, and checks what clients were told
	FAULTS=$(FAULTS) FAULTS_SEED=$(FAULTS_SEED) go test -vet=off -count=1 -v -timeout=12h ./test/e2e/faults

OUTAGE ?= 240s
ROLLINGS ?= 20
BY_HAND = go test -vet=off -count=1 -v -timeout=12h

.PHONY: test-outages
test-outages: binaries ## Takes etcd away for OUTAGE=240s, in four ways, and fails if writes come back later than after 2 s
	OUTAGE=$(OUTAGE) $(BY_HAND) -run='^TestOutages$$' ./test/e2e/faults

.PHONY: test-rollings
test-rollings: binaries ## Replaces 2 and 3 replicas ROLLINGS=20 times, routed by kube-apiserver or by a balancer, at 200 requests/s
	ROLLINGS=$(ROLLINGS) $(BY_HAND) -run='^TestRollingRestart$$' ./test/e2e/rollout

OBJECTS ?= 100000

.PHONY: test-migration
test-migration: binaries ## Moves OBJECTS=100000 custom resources there and back while clients write, and prints how long that and the longest write took
	MIGRATION_OBJECTS=$(OBJECTS) go test -vet=off -count=1 -v -timeout=6h -run='^TestManyObjects$$' ./test/e2e/migration

KILLS ?= 100

.PHONY: test-migration-kills
test-migration-kills: binaries ## Moves custom resources there and back KILLS=100 times, while clients write and everything is killed at random; MIGRATION_SEED repeats that
	MIGRATION_KILLS=$(KILLS) go test -vet=off -count=1 -v -timeout=12h -run='^TestKilledServers$$' ./test/e2e/migration

ATTACK_SECONDS ?= 60

.PHONY: test-attacks
test-attacks: binaries ## Attacks the server, crd-apiserver and the webhook, ATTACK_SECONDS=60 each, and prints what became of them and of others
	ATTACK_SECONDS=$(ATTACK_SECONDS) go test -vet=off -count=1 -v -timeout=4h ./test/e2e/attacks
	ATTACKED=crd-apiserver ATTACK_SECONDS=$(ATTACK_SECONDS) go test -vet=off -count=1 -v -timeout=4h ./test/e2e/attacks

# Go fuzzes one function of one package at a time. Its findings are kept in testdata, with some
# inputs to begin with, and are test cases of "make test-unit" from then on. To make each new input
# as small as it can be, up to a minute for each, would take most of the time.
FUZZ_TIME ?= 5m

.PHONY: fuzz
fuzz: ## Looks for bodies that cost more than their bounds, or that the server fails at, FUZZ_TIME for each target
	for package in ./pkg/apiserver/limits ./pkg/registry/restaurant ./pkg/webhook; do \
		for target in $$(go test -vet=off -list='^Fuzz' $${package} | grep '^Fuzz'); do \
			go test -vet=off -run='^$$' -fuzz="^$${target}\$$" -fuzztime=$(FUZZ_TIME) -fuzzminimizetime=50x $${package}; \
			hack/keep-corpus.sh $${package} $${target}; \
		done; \
	done

# All rounds of a package run at once: each is the load of the others.
# Without the race detector, which "make test" has: the faults to find here depend on time.
ROUNDS ?= 20
E2E_ROUNDS ?= 5
STRESS = -p=1 -count=1 -timeout=0 -exec='$(CURDIR)/$(BIN)/stress -timeout=60m

.PHONY: stress
stress: ## Runs tests ROUNDS=20 or E2E_ROUNDS=5 times at once: UNIT_PACKAGES and E2E_PACKAGES
	@$(MAKE) --keep-going --no-print-directory $(if $(filter-out 0,$(ROUNDS)),stress-unit) $(if $(filter-out 0,$(E2E_ROUNDS)),stress-e2e)

.PHONY: stress-unit
stress-unit: $(BIN)/stress
	packages="$(UNIT_PACKAGES)"; go test -vet=off $(STRESS) -p=$(ROUNDS) -count=$(ROUNDS)' $${packages}

.PHONY: stress-e2e
stress-e2e: binaries $(BIN)/stress
	packages="$(E2E_PACKAGES)"; go test -vet=off $(STRESS) -p=$(E2E_ROUNDS) -count=$(E2E_ROUNDS)' $${packages}
