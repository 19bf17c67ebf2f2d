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

# Shell scripts, checked by shellcheck and formatted by shfmt.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v shellcheck >/dev/null ||
	fail 'shellcheck is not installed, so the shell scripts cannot be checked. Install it, on Debian by "apt-get install shellcheck".'

list=$(shell_scripts)
mapfile -t scripts <<<"${list}"

shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}" ||
	fail 'shellcheck objects to the scripts above. Each finding has a page at https://www.shellcheck.net/wiki that says how to write it instead.'

lint_tool shfmt --diff "${scripts[@]}" ||
	fail 'Shell scripts are not formatted. Run "make update-format".'
