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

# Checks and tests what has changed since the merge base with main, or since the commit
# that BASE names, in about two minutes. It prints which end-to-end tests import what has
# changed, or are named after it, and which suites of "make nightly" run these tests.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main=main
! git rev-parse --quiet --verify origin/main >/dev/null || main=origin/main
base=$(git merge-base HEAD "${BASE:-${main}}")
readonly main base

# step says what follows, and how long the step before it took.
step() {
	echo "==> $* (${SECONDS} s)"
}

changed=$({ git diff --name-only "${base}" && git ls-files --others --exclude-standard; } | sort --unique)
if [[ -z ${changed} ]]; then
	echo "Nothing has changed since ${base}. BASE names another commit to compare with."
	exit 0
fi

# Templates, testdata and embedded files belong to the package above them. So does what a
# deleted package leaves.
directories=$(xargs dirname <<<"${changed}" | sort --unique | while read -r directory; do
	directory=${directory%%/testdata*}
	until [[ ${directory} == . ]] || compgen -G "${directory}/*.go" >/dev/null; do
		directory=$(dirname "${directory}")
	done
	echo "${directory}"
done | sort --unique)
packages=() imports=()
for directory in ${directories}; do
	if import=$(go list "./${directory}" 2>/dev/null); then
		packages+=("./${directory}")
		imports+=("${import}")
	fi
done

status=0
# Other versions of libraries affect all packages, and linting all takes too long.
if grep --quiet '^go\.\(mod\|sum\)$' <<<"${changed}"; then
	step 'go build ./pkg/...'
	go build ./pkg/... || status=1
fi
# importers PATTERN... prints the packages whose code or tests import one that has changed.
importers() {
	go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' "$@" |
		awk -v changed="${imports[*]}" -v module="$(go list -m)" '
			BEGIN { split(changed, list, " "); for (i in list) wanted[list[i]] = 1 }
			{ for (i = 1; i <= NF; i++) if ($i in wanted) { sub(module, ".", $1); print $1; next } }'
}

if ((${#packages[@]} > 0)); then
	step 'golangci-lint'
	hack/verify-lint.sh --new-from-rev="${base}" "${packages[@]}" || status=1

	# Packages under test/ need a control plane.
	tests=$(importers ./cmd/... ./pkg/... ./hack/...)
	step 'go test -short'
	# shellcheck disable=SC2086 # a list of packages
	[[ -z ${tests} ]] || hack/test.sh -vet=off -short -timeout=5m ${tests} || status=1
fi

step 'done'
tests=$({
	importers ./test/...
	for directory in ${directories//\// }; do
		[[ ! -d test/e2e/${directory} ]] || echo "./test/e2e/${directory}"
	done
} | sort --unique)
[[ -n ${tests} ]] || exit "${status}"
echo "Also run: go test -vet=off -short -count=1 ${tests//$'\n'/ }"
awk -v tests="${tests//$'\n'/ }" '
	BEGIN { split(tests, list, " "); for (i in list) wanted[list[i]] = 1 }
	/^suite-/ { suite = $1; sub(/^suite-/, "", suite); sub(/:$/, "", suite) }
	{ for (i = 1; i <= NF; i++) if ($i in wanted) print suite }' hack/make/nightly.mk | sort --unique | while read -r suite; do
	echo "Before a release, run: make nightly SUITE=${suite}"
done
exit "${status}"
