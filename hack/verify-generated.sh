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

# Generated code is what hack/update-codegen.sh makes of the types, and docs/reference is what
# hack/update-reference.sh makes of the code and of the charts. Both are made in a copy, so that a check changes
# nothing.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly copy=_output/verify-generated

rm -rf "${copy}"
mkdir -p "${copy}"
files go.mod go.sum hack/boilerplate.go.txt pkg docs/reference | tar --create --files-from - | tar --extract --directory "${copy}"
hack/update-codegen.sh "${copy}"
hack/update-reference.sh "${copy}/docs/reference"

for directory in pkg docs/reference; do
	diff --recursive --new-file --unified "${directory}" "${copy}/${directory}" ||
		fail "${directory} is not what the types, the code and the charts ask for. Run \"make update\" and commit the result."
done
