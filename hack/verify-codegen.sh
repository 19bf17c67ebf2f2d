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

# Generated code is what hack/update-codegen.sh makes of the types. It is
# generated in a copy of the repository, so that a check changes nothing.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly copy=_output/verify-codegen

rm -rf "${copy}"
mkdir -p "${copy}"
files go.mod go.sum hack/boilerplate.go.txt pkg | tar --create --files-from - | tar --extract --directory "${copy}"
hack/update-codegen.sh "${copy}"

diff --recursive --new-file --unified pkg "${copy}/pkg" ||
	fail 'The generated code is not what the types ask for. Run "make update-codegen" and commit the result.'
