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

# Gives the module another path: rename-module.sh PATH. The API group keeps its name. It belongs in a
# commit of its own, before anybody imports the module.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly new=${1:?"name the new path, such as example.org/apiserver"}
old=$(go list -m)
readonly old

[[ ${new} =~ ^[a-z0-9][a-z0-9.-]*\.[a-z]+(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$ ]] ||
	fail "${new} is no module path: begin with a domain, such as example.org/apiserver."
[[ -z $(git status --porcelain) ]] ||
	fail 'There are changes that are not committed. Commit them first, so that the new path is a commit of its own.'

# protobuf_name prints the prefix of the names of protobuf packages.
protobuf_name() { tr '/-' '._' <<<"$1"; }

old_protobuf=$(protobuf_name "${old}")
new_protobuf=$(protobuf_name "${new}")
mapfile -t files < <(git grep --files-with-matches --fixed-strings -e "${old}" -e "${old_protobuf}" -e "${old//./\\.}")
sed -i "s|${old//./\\.}|${new}|g; s|${old_protobuf//./\\.}|${new_protobuf}|g; s|${old//./\\\\\\.}|${new//./\\\\.}|g" "${files[@]}"

# Its order of imports and names follows from the path.
hack/update-codegen.sh
