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

##@ Measure

# On a machine that does nothing else. The measurements beside other servers take half an hour.
BENCH_OUT ?= docs/benchmarks/$(shell date -u +%F).json

.PHONY: bench
bench: binaries $(BIN)/sample-apiserver ## Measures the server by itself, and beside CRDs and others; samples in BENCH_OUT
	go run ./test/bench
	go test -vet=off -run='^$$' -bench='^BenchmarkStart$$' -benchtime=10x ./pkg/apiserver/testing 2>/dev/null
	go run ./test/bench/comparison -out=$(BENCH_OUT)
	go run ./test/bench/comparison -contenders=crd,pizzas -identities=user -controllers -objects=0 -watches=0 -reviews=0 -growth=

.PHONY: bench-compare
bench-compare: binaries ## Compares what requests cost this build of the server and the one of the commit BASE
	@hack/build-base.sh $(BASE)
	go run ./test/bench/comparison -base=_output/base/apiserver -rounds=9

.PHONY: profile
profile: binaries ## Writes profiles of the server at each verb and way to list to _output/profiles
	go run ./test/bench/comparison -contenders=pizzas -identities=user -profiles=_output/profiles

.PHONY: bench-kine
bench-kine: binaries $(BIN)/kine ## Measures writes and watches with etcd, and with PostgreSQL behind kine
	go test -vet=off -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api
	hack/with-kine.sh go test -vet=off -run='^$$' -bench=. -benchtime=3000x ./test/e2e/api

# The tests of a package count for what is below it: pkg/apiserver with all its packages,
# the others without those of the groups.
.PHONY: cover
cover: ## Prints how much of the generic packages their own tests cover
	@mkdir -p _output/cover
	@for subject in apiserver/... registry admission; do \
		profile=_output/cover/$${subject%%/*}; \
		go test -vet=off -count=1 -coverpkg=./pkg/$${subject} -coverprofile=$${profile} ./pkg/$${subject} >$${profile}.log || { cat $${profile}.log; exit 1; }; \
		printf 'pkg/%-14s %s\n' "$${subject}" "$$(go tool cover -func=$${profile} | awk 'END { print $$3 }')"; \
	done
