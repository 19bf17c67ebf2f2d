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

# Copies the smallest inputs that "go test -fuzz" has found for a target from Go's cache to
# testdata. There they are test cases, and later runs begin with them.
#
#   hack/keep-corpus.sh ./pkg/apiserver/limits FuzzQuantity

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# How many inputs of a target are kept.
readonly most=50

package=$1 target=$2
found=$(go env GOCACHE)/fuzz/$(go list "${package}")/${target}
kept=${package}/testdata/fuzz/${target}
[[ -d ${found} ]] || exit 0
mkdir -p "${kept}"
missing=$((most - $(find "${kept}" -type f | wc -l)))
((missing > 0)) || exit 0
find "${found}" -type f -printf '%s %f\n' | sort -n | awk -v most="${missing}" 'NR <= most { print $2 }' | while read -r name; do
	cp --no-clobber "${found}/${name}" "${kept}/"
done
