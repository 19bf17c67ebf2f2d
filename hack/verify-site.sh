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

# The site of the documentation can be built: every page that it names exists, and every
# link between pages leads somewhere.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! command -v mkdocs >/dev/null; then
	[[ ${CI-} != true ]] ||
		fail 'mkdocs is not installed, so the site cannot be built. Install it, on Debian by "apt-get install mkdocs".'
	echo 'Skipped: mkdocs is not installed (Debian: mkdocs).'
	exit
fi

site=$(mktemp -d)
trap 'rm -rf "${site}"' EXIT
output=$(mkdocs build --strict --site-dir "${site}" 2>&1) ||
	fail "${output}" 'The site cannot be built. Repair the links above, and the pages in mkdocs.yml.'

# A page without a place in the navigation is found by nobody.
lost=$(grep --only-matching --extended-regexp '^  - [^ ]+\.md$' <<<"${output}" | grep --invert-match --extended-regexp ' (benchmarks|lab|upstream|zh)/|operations/README.md' || true)
[[ -z ${lost} ]] ||
	fail "${lost}" 'These pages are not in the navigation. Add them to mkdocs.yml.'
