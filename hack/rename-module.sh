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

# Gives the project a home: another path of the module, where to report vulnerabilities, and who maintains
# it. The API group keeps its name. It belongs in a commit of its own, before anybody imports the module.
#
#   hack/rename-module.sh PATH [CONTACT [MAINTAINERS]]
#
# PATH, with https:// before it, is the URL of images, packages and plugins as well. CONTACT and MAINTAINERS
# stay what they are if they are not named.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly new=${1:?"name the new path, such as example.org/apiserver"} contact=${2:-} maintainers=${3:-}
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

# replace REGEX WITH puts a value where there is none yet.
replace() {
	local files
	mapfile -t files < <(git grep --files-with-matches -e "$1" -- '*.md' .github)
	[[ -z $2 ]] || sed -i "s|$1|$2|g" "${files[@]}"
}
replace 'security@example[.]com' "${contact}"
replace '@example/maintainers' "${maintainers}"

# Its order of imports and names follows from the path.
hack/update-codegen.sh
