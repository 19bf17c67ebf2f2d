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

# Shows that each check of "make verify" passes on a sound repository, and that
# it fails on an unsound one and says why.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly root=${PWD}
repository=$(mktemp -d)
trap 'rm -rf "${repository}"' EXIT

# A repository as small as can be, with this one's checks.
mkdir -p "${repository}"/{hack/tools,pkg/apis/group,pkg/registry/restaurant}
cp hack/lib.sh hack/verify-*.sh hack/boilerplate.go.txt "${repository}/hack"
cp -r hack/tools/lint "${repository}/hack/tools"
cp .golangci.yaml .editorconfig "${repository}"
head -n 3 go.mod >"${repository}/go.mod"
cd "${repository}"
git init --quiet

readonly module=restaurant.programming-kubernetes.info/apiserver

# go_file prints a Go file of package $1 with the licence header; its
# declarations come from stdin.
go_file() {
	local declarations
	declarations=$(cat)
	cat hack/boilerplate.go.txt
	printf '\n// Package %s is made up.\npackage %s\n' "$1" "$1"
	if [[ -n ${declarations} ]]; then
		printf '\n%s\n' "${declarations}"
	fi
}

# database prints one file of a vulnerability database, in which strings.ToUpper
# of every Go is vulnerable.
database() {
	case $1 in
	index/db) echo '{"modified": "2026-01-01T00:00:00Z"}' ;;
	index/modules) echo '[{"path": "stdlib", "vulns": [{"id": "GO-2026-0000", "modified": "2026-01-01T00:00:00Z"}]}]' ;;
	ID/GO-2026-0000) echo '{"id": "GO-2026-0000", "affected": [{
		"package": {"name": "stdlib", "ecosystem": "Go"},
		"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
		"ecosystem_specific": {"imports": [{"path": "strings", "symbols": ["ToUpper"]}]}}],
		"database_specific": {"url": "https://example.com"}}' ;;
	esac
}

checks=0

# passes runs the check $1 with the other arguments.
passes() {
	local output
	checks=$((checks + 1))
	output=$("hack/verify-$1.sh" "${@:2}" 2>&1) ||
		fail "${output}" "FAIL: verify-$1 does not accept a sound repository."
}

# rejects runs the check $1 with the arguments from the third on; it must fail
# and say $2.
rejects() {
	local output
	checks=$((checks + 1))
	! output=$("hack/verify-$1.sh" "${@:3}" 2>&1) ||
		fail "FAIL: verify-$1 does not notice what should make it say \"$2\"."
	[[ ${output} == *"$2"* ]] ||
		fail "${output}" "FAIL: verify-$1 does not say \"$2\"."
}

go_file group >pkg/apis/group/group.go </dev/null
go_file restaurant >pkg/registry/restaurant/restaurant.go <<EOF
import _ "${module}/pkg/apis/group" // an arrow that is allowed
EOF
# Continuous integration only warns of what is translated later.
export CI=

for name in boundaries headers shell modules lint; do
	passes "${name}"
done

# A new group needs no line in a check.
bakery=(pkg/apis/bakery pkg/apis/bakery/v1 pkg/generated/clientset/typed/bakery pkg/registry/bakery
	pkg/admission/plugin/bakery/shelves pkg/controller/bakery/baking pkg/webhook/bakery pkg/groups/bakery pkg/groups/bakery/lookup)
for directory in "${bakery[@]}"; do
	mkdir -p "${directory}"
	go_file bakery >"${directory}/bakery.go" <<<"import _ \"${module}/pkg/apis/group\""
done
mkdir -p cmd/apiserver
go_file main >cmd/apiserver/main.go <<<"import _ \"${module}/pkg/groups/bakery\""
passes boundaries
rm -rf "${bakery[@]}" cmd pkg/{generated,admission,controller,webhook,groups}

while read -r from to sentence; do
	mkdir -p "${from}" "${to}"
	go_file to >"${to}/to.go" </dev/null
	go_file from >"${from}/from.go" <<<"import _ \"${module}/${to}\""
	rejects boundaries "./${from} imports ./${to}: ${sentence}"
	rm -rf "${from}" "${to}"
done <<EOF
pkg/registry pkg/apis/pizza pkg/registry must not import pkg/apis.
pkg/registry pkg/registry/restaurant/pizza pkg/registry must not import pkg/registry/*.
pkg/registry/restaurant/pizza pkg/controller/restaurant/pricing pkg/registry/* must not import pkg/controller/*.
pkg/registry/restaurant/pizza pkg/apiserver pkg/registry/* must not import pkg/apiserver.
pkg/apiserver/options pkg/generated/clientset pkg/apiserver must not import pkg/generated.
pkg/apiserver/options pkg/doctor pkg/apiserver must not import pkg/doctor.
pkg/apiserver/options pkg/admission/plugin/bakery/ovens pkg/apiserver must not import pkg/admission/plugin/*.
pkg/apis/pizza pkg/registry/bakery pkg/apis must not import pkg/registry/*.
pkg/etcd pkg/registry pkg/etcd must not import pkg/registry.
pkg/controller/bakery cmd/apiserver pkg/controller/* must not import cmd.
cmd/apiserver test/controlplane cmd must not import test.
EOF

mkdir -p pkg/handy
go_file handy >pkg/handy/handy.go <<<'import _ "strings"'
rejects boundaries './pkg/handy belongs to no layer.'
rm -r pkg/handy

mkdir -p docs/reference hack/reference
cp "${root}/hack/update-reference.sh" hack
go_file main >hack/reference/main.go <<'EOF'
import "os"

func main() { os.WriteFile(os.Args[1]+"/flags.md", []byte("--fresh\n"), 0o600) }
EOF
rejects reference '+--fresh'
echo --fresh >docs/reference/flags.md
passes reference
echo --gone >docs/reference/other.md
rejects reference '---gone'
rm -r docs/reference hack/reference hack/update-reference.sh

mkdir -p docs/figures
echo 'digraph figure { a -> b }' >docs/figures/figure.dot
rejects figures 'docs/figures/figure.svg'
echo '<svg/>' >docs/figures/figure.svg
rejects figures 'docs/figures/figure.svg'
(
	source hack/lib.sh
	checksum=$(figure_checksum docs/figures/figure.{dot,svg})
	echo "<!-- ${checksum} -->" >>docs/figures/figure.svg
)
passes figures
cp -r docs/figures drawn
echo '// changed' >>docs/figures/figure.dot
rejects figures 'Run "make update-figures".'
cp drawn/* docs/figures
sed -i 's,<svg/>,<svg></svg>,' docs/figures/figure.svg
rejects figures 'Run "make update-figures".'
cp drawn/* docs/figures
mkdir docs/benchmarks
echo '{}' >docs/benchmarks/2026-01-01.json
echo '<svg/>' >docs/figures/bench-rate.svg
rejects figures 'docs/figures/bench-rate.svg'
(
	source hack/lib.sh
	checksum=$(figure_checksum docs/benchmarks/2026-01-01.json docs/figures/bench-rate.svg)
	echo "<!-- ${checksum} -->" >>docs/figures/bench-rate.svg
)
passes figures
echo '{"later": true}' >docs/benchmarks/2026-01-02.json
rejects figures 'docs/figures/bench-rate.svg'
rm -r docs drawn

mkdir -p docs/zh
tee README.md docs/guide.md >/dev/null <<'EOF'
# Title

Text with a [link](a).

```console
$ command
```
EOF
tee docs/zh/README.md docs/zh/guide.md >/dev/null <<'EOF'
# 标题

带[链接](../a)的文字。

```console
$ command
```
EOF
passes translations
printf '\nMore.\n' >>README.md
rejects translations '-paragraph with 0 links'
cp docs/guide.md README.md
sed -i 's/command/other/' docs/guide.md
rejects translations '+$ command'
rm docs/guide.md
rejects translations 'its source docs/guide.md does not exist.'
rm -r docs README.md

for file in pkg/apis/group/bare.go bare.dot bare.sh bare bare.yaml bare.mk Makefile bare.proto bare.html bare.tsx; do
	printf '#!/bin/bash\n' >"${file}"
	rejects headers "${file}"
	rm "${file}"
done

printf 'pkg 99 0\n' >hack/budgets.txt
passes budgets
printf 'pkg 9 0\n' >hack/budgets.txt
rejects budgets 'lines of code, and a budget of 9.'
printf 'pkg/apis 99 0\n' >hack/budgets.txt
go_file pkg >pkg/handy.go </dev/null
rejects budgets 'pkg/handy.go is in no room of hack/budgets.txt'
rm hack/budgets.txt pkg/handy.go

{
	head -n 15 hack/verify-lint.sh
	echo
	echo "echo \$1"
} >script
rejects shell 'SC2086'
sed -i 's/echo .*/ echo "done"/' script
rejects shell 'Run "make update-format".'
rm script

cp go.mod go.mod.sound
echo 'require golang.org/x/text v0.43.0' >>go.mod
rejects modules 'Run "make update-modules".'
mv go.mod.sound go.mod

go_file group >pkg/apis/group/unsound.go <<'EOF'
import "reflect"

// Count is changed by everybody.
var Count int

func init() { panic(reflect.TypeFor[string]()) }

// Misformatted is.
func Misformatted()  {}
EOF
for finding in '(depguard)' '(gochecknoglobals)' '(gochecknoinits)' '(forbidigo)' 'not properly formatted'; do
	rejects lint "${finding}"
done
rm pkg/apis/group/unsound.go
printf 'import "github.com/stretchr/testify/require"\n' >pkg/apis/group/mixed_test.go
printf '\tt.Fatal(err)\n' >pkg/apis/group/other_test.go
mkdir pkg/apis/sound
go_file sound >pkg/apis/sound/sound.go </dev/null
rejects lint 'Use one of them.' ./pkg/apis/sound
rm -r pkg/apis/sound pkg/apis/group/*_test.go

go_file group >pkg/apis/group/calls.go <<'EOF'
import "strings"

// Shout calls vulnerable code.
func Shout(text string) string { return strings.ToUpper(text) }
EOF
mkdir -p database/{index,ID}
for file in index/db index/modules ID/GO-2026-0000; do
	database "${file}" >"database/${file}.json"
done
rejects vulnerabilities 'Vulnerable code is called.' -db "file://${PWD}/database"
rm pkg/apis/group/calls.go
passes vulnerabilities -db "file://${PWD}/database"

echo "All ${checks} checks of the checks passed."
