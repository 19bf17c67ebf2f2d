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

# Every room has at most as many lines of Go, generated code aside, as hack/budgets.txt says.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

written=$(files 'cmd/*.go' 'hack/*.go' 'pkg/*.go' 'test/*.go' | xargs grep --files-without-match '^// Code generated .* DO NOT EDIT\.$' || true)
# shellcheck disable=SC2016 # The program is awk's.
xargs --exit --max-chars=1000000 awk '
	FILENAME == ARGV[1] { if ($1 !~ /^#/ && NF) { code[$1] = $2; tests[$1] = $3 }; next }
	FNR == 1 {
		known = 0
		for (room in code) known += within[room] = index(FILENAME, room "/") == 1
		if (!known) { print FILENAME " is in no room of hack/budgets.txt: add one."; failed = 1 }
	}
	{ for (room in code) if (within[room]) if (FILENAME ~ /_test\.go$/) has_tests[room]++; else has[room]++ }
	function check(room, has, budget, of) { if (has > budget) { print room " has " has " lines of " of ", and a budget of " budget "."; failed = 1 } }
	END {
		for (room in code) { check(room, has[room] + 0, code[room], "code"); check(room, has_tests[room] + 0, tests[room], "tests") }
		if (failed) print "Delete what nobody needs. If the lines bring a capability, raise the budget in hack/budgets.txt, and say in the message of the commit what they bring to whom."
		exit failed
	}' hack/budgets.txt <<<"${written}"
