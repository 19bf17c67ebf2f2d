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

##@ Verify

.PHONY: verify-lint
verify-lint: ## Checks formatting, go vet and static analysis
	hack/verify-lint.sh

.PHONY: verify-boundaries
verify-boundaries: ## Checks that imports point one way
	hack/verify-boundaries.sh

.PHONY: verify-budgets
verify-budgets: ## Checks that no directory has more lines than hack/budgets.txt says
	hack/verify-budgets.sh

.PHONY: verify-headers
verify-headers: ## Checks that every source file has the licence header
	hack/verify-headers.sh

.PHONY: verify-site
verify-site: ## Checks that the site of the documentation can be built
	hack/verify-site.sh

.PHONY: verify-shell
verify-shell: ## Checks the shell scripts
	hack/verify-shell.sh

.PHONY: verify-modules
verify-modules: ## Checks that every go.mod and go.sum is tidy
	hack/verify-modules.sh

.PHONY: verify-codegen
verify-codegen: ## Checks that generated code is fresh
	hack/verify-codegen.sh

.PHONY: verify-reference
verify-reference: ## Checks that docs/reference is fresh
	hack/verify-reference.sh

.PHONY: verify-vulnerabilities
verify-vulnerabilities: ## Checks for known vulnerabilities, where their database can be reached
	hack/verify-vulnerabilities.sh

##@ Update

.PHONY: update-codegen
update-codegen: ## Generates code
	hack/update-codegen.sh

.PHONY: update-reference
update-reference: ## Writes docs/reference: flags, metrics, and the values of the chart
	hack/update-reference.sh

.PHONY: update-format
update-format: ## Formats Go code and shell scripts
	hack/update-format.sh

.PHONY: update-modules
update-modules: ## Tidies every go.mod and go.sum
	hack/update-modules.sh

.PHONY: update-figures
update-figures: ## Draws the figures of the documentation, with graphviz
	hack/update-figures.sh
