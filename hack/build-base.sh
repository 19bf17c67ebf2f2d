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

# Builds the server of another commit into _output/base.
#
#   hack/build-base.sh v0.1.0

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

base=${1:-}
[[ -n ${base} ]] || fail 'Name the commit to compare with, such as "make bench-compare BASE=HEAD~1".'
commit=$(git rev-parse --verify --quiet "${base}^{commit}") || fail "git has no commit ${base}: name another one by BASE."

readonly source=_output/base/source
git worktree remove --force "${source}" 2>/dev/null || rm -rf "${source}"
git worktree prune
git worktree add --quiet --detach "${source}" "${commit}"
CGO_ENABLED=0 go build -C "${source}" -trimpath -buildvcs=false -o ../apiserver ./cmd/apiserver
git worktree remove --force "${source}"
