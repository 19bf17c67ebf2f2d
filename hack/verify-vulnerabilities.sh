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

# Known vulnerabilities in code that is really called. Arguments go to
# govulncheck, for instance -db with a copy of the database.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Without its database govulncheck can tell nothing, and that must not fail
# the build of a machine without a network. It names the database's date only
# when it could read it.
version=$(lint_tool govulncheck -version "$@")
if [[ ${version} != *'DB updated:'* ]]; then
	echo 'Skipped: the vulnerability database https://vuln.go.dev cannot be reached from here.'
	exit 0
fi

status=0
lint_tool govulncheck "$@" ./... || status=$?
((status != 3)) ||
	fail 'Vulnerable code is called. Raise the module named above to the version it is fixed in: "go get MODULE@VERSION && make update-modules".'
exit "${status}"
