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

# Runs "go test" with the arguments, flags of the form -name=value and packages, and prints a line for each package, and
# the output of failed tests.
#
# With RERUN=true, up to three failed tests run again, after the others, unless there was a data race. Those that pass
# then are flakes, which are appended to the file FLAKES.
#
# A skipped test has tested nothing. With CI=true, it is a failure, unless its reason begins with "hardware:", which is
# for tests that the machine can't run, whatever is installed, or with "long:", which is for tests that -short leaves out.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

flags=() packages=()
for argument in "$@"; do
	if [[ ${argument} == -* ]]; then flags+=("${argument}"); else packages+=("${argument}"); fi
done

directory=$(mktemp -d)
trap 'rm -rf "${directory}"' EXIT
readonly events=${directory}/events flakes=${directory}/flakes
options=(--format=pkgname --hide-summary=skipped --jsonfile="${events}")
[[ ${RERUN-} != true ]] ||
	options+=(--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-report="${flakes}")

status=0
lint_tool gotestsum "${options[@]}" --packages="${packages[*]}" -- "${flags[@]}" || status=$?
if [[ -s ${flakes} ]]; then
	echo 'FLAKED, if it passed the second time:'
	tee -a "${FLAKES:-/dev/null}" <"${flakes}"
fi

# names PATTERN prints the tests of those events of "go test -json" that match; that of a TestMain is empty.
names() {
	{ grep -E "$1" "${events}" || true; } |
		sed -n 's/.*"Package":"\([^"]*\)"\(,"Test":"\([^"]*\)"\)\?.*/\1 \3/p' | sort --unique
}

skipped=$(names '"Action":"skip".*"Test":|"Output":"Skipped: ')
excused=$(names '"Output":"( +[a-z0-9_]+\.go:[0-9]+|Skipped): (hardware|long): ')
needless=$(comm -23 <(echo "${skipped}") <(echo "${excused}"))
if [[ -n ${needless} ]]; then
	echo "Skipped:" "${needless}"
	[[ ${CI-} != true ]] ||
		fail 'CI=true does not allow it. Provide what the tests ask for, or, if no installation can, start the reason with "hardware:".'
fi
exit "${status}"
