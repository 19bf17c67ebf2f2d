#!/usr/bin/env bash

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

# Runs the end-to-end test that is named with the server in this tree, registered in the
# control plane of "make run" until the test ends.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly test=${1:-}
[[ ${test} =~ ^Test[A-Za-z0-9_]+$ ]] ||
	fail 'Name a test: make smoke RUN=TestBake'

files=$(grep --recursive --files-with-matches --include='*_test.go' "^func ${test}(" test/e2e) ||
	fail "There is no ${test} in test/e2e."
[[ ${files} != *$'\n'* ]] ||
	fail "${files}" "Several packages have a ${test}. Run that of one: CONTROLPLANE_ATTACH=\$PWD/_output/local go test -run='^${test}\$' ./test/e2e/PACKAGE"

hack/build-binaries.sh apiserver
go test -vet=off -count=1 -v -run="^${test}\$" "./$(dirname "${files}")"
