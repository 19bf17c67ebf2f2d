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

# Generates all code that is generated, in this module or in that of the directory $1, with
# the kit: what the types in its directories "apis" ask for beside them, and the directories
# "generated". pkg/kit/codegen says which groups it finds. The generators have the version of the
# Kubernetes libraries, and need nothing else on the machine.

module=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/..}")

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly module

go run ./cmd/kit generate --dir="${module}"
