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

# Tidies every go.mod and go.sum of the repository. With -diff, it fails if one is not tidy, and changes nothing.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# On a new machine most of it is downloads.
files '*go.mod' | xargs --max-args=1 dirname | xargs --max-procs=4 -I{} go -C {} mod tidy "$@" ||
	fail 'The modules above are not tidy. Run "make update-modules".'
