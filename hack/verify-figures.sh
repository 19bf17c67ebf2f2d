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
# Figures are up to date with their sources. Drawing them takes graphviz; comparing
# checksums does not.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

stale=()

# check SOURCE FIGURE
check() {
	local checksum=missing
	[[ ! -f $2 ]] || checksum=$(figure_checksum "$1" "$2")
	grep --quiet --no-messages --fixed-strings "<!-- ${checksum} -->" "$2" || stale+=("$2")
}

while read -r source; do
	check "${source}" "${source%.dot}.svg"
done < <(files 'docs/figures/*.dot')

results=$(latest_results)
while read -r figure; do
	check "${results}" "${figure}"
done < <(files 'docs/figures/bench-*.svg')

((${#stale[@]} == 0)) ||
	fail "${stale[@]}" 'These figures do not match their sources, the .dot files beside them or the latest file in docs/benchmarks. Run "make update-figures".'
