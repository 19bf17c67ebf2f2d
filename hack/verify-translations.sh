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

# Each document in docs/zh has the headings, paragraphs, lists, tables and links of its source, and
# the same code. A change of these in a source needs the same change in the translation.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# outline prints what a document and its translation have in common: code as it is, and of
# everything else what it is and how many links it has.
outline() {
	awk '
		function flush() { if (type) print type " with " links " links"; type = ""; links = 0 }
		function begin(what) { flush(); type = what }
		/^```/ { flush(); fenced = !fenced; print; next }
		fenced || /^    / && !type { flush(); print; next }
		/^[[:space:]]*$/ { flush(); next }
		/^#+ / { begin($1 " heading") }
		/^- / { begin("item") }
		/^\|/ { begin("row of " gsub(/\|/, "|") " bars") }
		!type { type = "paragraph" }
		{ links += gsub(/\]\(/, "](") }
		END { flush() }
	' "$1"
}

stale=()
while read -r translation; do
	name=${translation#docs/zh/}
	original=docs/${name}
	[[ ${name} != README.md ]] || original=README.md
	if [[ ! -f ${original} ]]; then
		stale+=("${translation}: its source ${original} does not exist.")
	elif ! differences=$(diff --unified=1 --label="${original}" --label="${translation}" <(outline "${original}") <(outline "${translation}")); then
		stale+=("${differences}")
	fi
done < <(files 'docs/zh/*.md')

((${#stale[@]} == 0)) && exit
printf '%s\n' "${stale[@]}" 'These translations differ from their sources in what both should have. Translate what has changed.' >&2
# A change is not kept waiting for a translator.
[[ ${CI-} == true ]]
