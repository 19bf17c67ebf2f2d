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

# Formatting, go vet and static analysis, all by golangci-lint; .golangci.yaml
# says what is asked for and why.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

lint_tool golangci-lint run "$@" ||
	fail 'The Go code does not pass .golangci.yaml. "make update-format" repairs formatting; the other findings need an edit.'
