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

# docs/reference is what hack/update-reference.sh makes of the code and of the chart.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly fresh=_output/verify-reference

rm -rf "${fresh}"
mkdir -p "${fresh}"
hack/update-reference.sh "${fresh}"

diff --recursive --new-file --unified docs/reference "${fresh}" ||
	fail 'docs/reference is not what the code and the chart say. Run "make update-reference" and commit the result.'
