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

# Every go.mod and go.sum of the repository is tidy.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# tidy tells whether a go.mod is. The first lines of the difference are enough to see what it is about.
tidy() {
	set -o pipefail
	go -C "$(dirname "$1")" mod tidy -diff | head -n 40 || {
		echo "$1 is not tidy." >&2
		return 1
	}
}
export -f tidy

# On a new machine most of it is downloads.
files '*go.mod' | xargs --max-procs=4 -I{} bash -c 'tidy {}' ||
	fail 'Run "make update-modules".'
