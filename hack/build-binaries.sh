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

# Builds the named binaries into _output/bin. A build that takes long tells every
# few seconds how far it is.
#
#   hack/build-binaries.sh apiserver kube-apiserver etcd

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly root=$PWD bin=$PWD/_output/bin

# The same for all, so that the modules share what they compile from equal
# sources.
readonly flags=(-v -trimpath)
export CGO_ENABLED=0

# In the same file system as the binaries, where the go command puts a binary in
# place by renaming it: an interrupted build leaves no part of one.
export GOTMPDIR=$PWD/_output/tmp
mkdir -p "$bin" "$GOTMPDIR"

# build NAME MODULE PACKAGE LDFLAGS
build() {
  (cd "$2" && go build "${flags[@]}" -ldflags "$4" -o "$bin/$1" "$3" 2>&1) | progress "$1"
  # Also a binary that was up to date is now newer than what it is made from.
  touch "$bin/$1"
}

# progress NAME condenses the output of "go build -v", which is a line for each
# package and each downloaded module; what else it says is passed on.
progress() {
  local line status packages=0 modules=0 told=0
  SECONDS=0
  while true; do
    status=0
    IFS= read -r -t 1 line || status=$?
    if ((status == 0)); then
      case $line in
        "go: downloading "*) modules=$((modules + 1)) ;;
        *[\ :#]*) printf '%s\n' "$line" ;;
        *) packages=$((packages + 1)) ;;
      esac
    elif ((status <= 128)); then # the end, not the timeout
      break
    fi
    if ((SECONDS >= told + 5)); then
      told=$SECONDS
      printf '%s: %d modules downloaded, %d packages compiled (%d s)\n' "$1" "$modules" "$packages" "$SECONDS"
    fi
  done
  if ((told > 0)); then
    printf '%s: done (%d s)\n' "$1" "$SECONDS"
  fi
}

# Without these variables Kubernetes binaries report the version v0.0.0.
kubernetes_ldflags() {
  local version major minor package=k8s.io/component-base/version
  version=$(cd hack/kubernetes && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${version#v}"
  echo "-s -w -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
}

for name in "$@"; do
  case $name in
    etcd) build "$name" hack/kubernetes go.etcd.io/etcd/server/v3 "-s -w" ;;
    kube*) build "$name" hack/kubernetes "k8s.io/kubernetes/cmd/$name" "$(kubernetes_ldflags)" ;;
    local) build "$name" "$root" ./test/controlplane/local "-s -w" ;;
    *) build "$name" "$root" "./cmd/$name" "-s -w" ;;
  esac
done
