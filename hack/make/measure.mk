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

# On a machine that does nothing else. The measurements take half an hour.
BENCH_OUT ?= docs/benchmarks/$(shell date -u +%F).json

.PHONY: bench
bench: binaries ## Measures requests beside custom resources; samples in BENCH_OUT
	go run ./test/bench/comparison -out=$(BENCH_OUT)

.PHONY: bench-compare
bench-compare: binaries ## Compares what requests cost this build of the server and the one of the commit BASE
	@hack/build-base.sh $(BASE)
	go run ./test/bench/comparison -base=_output/base/apiserver -rounds=9
