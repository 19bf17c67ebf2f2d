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

# Every source file starts with the licence header of hack/boilerplate.go.txt,
# whatever the language's way to write a comment.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# text prints a file's first lines without comment marks and blank lines.
text() {
	head -n 30 "$1" | sed -E -e 's,^(#|//|/\*|\*/),,' -e 's,^[ \t]+,,' -e '/^$/d'
}

header=$(text hack/boilerplate.go.txt)

sources=$(
	files '*.go' '*.proto' '*.dot' '*.yaml' '*.yml' '*.mk' '*.html' '*.mjs' '*.ts' '*.tsx' '*.py' '*Makefile' '*Dockerfile' ':!:*/testdata/*'
	shell_scripts
)

missing=()
while read -r source; do
	[[ $(text "${source}") == *"${header}"* ]] || missing+=("${source}")
done <<<"${sources}"

((${#missing[@]} == 0)) ||
	fail "${missing[@]}" 'These files lack the licence header. Copy it from hack/boilerplate.go.txt; outside Go with "#" before each line.'
