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

# Shows that rename-module.sh gives a copy of the last commit another path: it builds, and nothing
# names the old path.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

copy=$(mktemp -d)
trap 'rm -rf "${copy}"' EXIT
old=$(go list -m)
readonly copy old new=example.org/some-team/apiserver

git clone --quiet --no-local . "${copy}"
cd "${copy}"
hack/rename-module.sh "${new}" security@example.org @some-team/reviewers
go build ./cmd/... ./pkg/...
left=$(git grep --files-with-matches --fixed-strings -e "${old}" -e "$(tr '/-' '._' <<<"${old}")" || true)
[[ -z ${left} ]] || fail "These files still name ${old}:" "${left}"
left=$(git grep -e 'security@example[.]com' -e '@example/maintainers' -- '*.md' .github || true)
[[ -z ${left} ]] || fail 'There is a contact that nobody has chosen:' "${left}"
grep --quiet security@example.org SECURITY.md || fail 'SECURITY.md does not name the contact.'
grep --quiet '^\* @some-team/reviewers$' .github/CODEOWNERS || fail 'CODEOWNERS does not name the maintainers.'
module=$(go list -m)
[[ ${module} == "${new}" ]] || fail "The module is ${module}, and not ${new}."

# Nothing is changed for a path that is none.
! output=$(hack/rename-module.sh apiserver 2>&1) || fail 'rename-module.sh takes "apiserver" for a module path.'
[[ ${output} == *'apiserver is no module path'* ]] || fail "${output}" 'rename-module.sh does not say what is wrong with "apiserver".'
