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

# shellcheck shell=bash
# The parts that the scripts in this directory share. Sourcing it turns on strict
# mode and changes to the repository's root.

set -o errexit -o nounset -o pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# fail prints its arguments, one per line, and ends the script.
fail() {
	printf '%s\n' "$@" >&2
	exit 1
}

# lint_tool runs a tool pinned in hack/tools/lint/go.mod. Go builds it on first
# use and caches the binary.
lint_tool() {
	go tool -modfile=hack/tools/lint/go.mod "$@"
}

# build_tool builds a command of hack/tools into _output/bin.
build_tool() {
	CGO_ENABLED=0 go build -C "hack/tools/$1" -trimpath -buildvcs=false -o "${PWD}/_output/bin/$1" .
}

# archive TIME DIRECTORY [ARGUMENT...] packs members of a directory, or all, without anything that differs from run to
# run. All have the time, in seconds since 1970.
archive() {
	local members=("${@:3}")
	((${#members[@]} > 0)) || mapfile -t members < <(ls "$2")
	tar --create --directory="$2" --sort=name --mtime="@$1" --owner=0 --group=0 --numeric-owner \
		--mode=u=rwX,go=rX "${members[@]}"
}

# home prints the URL of this project. It follows from the module's path, which
# hack/rename-module.sh changes.
home() {
	local module
	module=$(go list -m)
	echo "https://${module}"
}

# link_version DIRECTORY has files of a release link to its pages, and not to those of later ones.
link_version() {
	local url
	url=$(home)/blob
	find "$1" -type f -exec sed --in-place "s|${url}/main/|${url}/${VERSION:-main}/|g" {} +
}

# files prints the files of the working tree that match the given git path
# patterns, committed or about to be: all that is neither ignored nor deleted.
files() {
	git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
		if [[ -f ${file} ]]; then
			echo "${file}"
		fi
	done
}

# shell_scripts prints the shell scripts of the working tree, with or without
# a suffix.
shell_scripts() {
	local list all
	list=$(files .)
	mapfile -t all <<<"${list}"
	lint_tool shfmt --find "${all[@]}"
}
