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

# Says, before "make test" starts, which of its tests this machine can't run and
# what they lack. With arguments, it fails without these programs.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# package prints the Debian package that has a command.
package() {
	case $1 in
	sshd) echo openssh-server ;;
	ssh | ssh-keygen) echo openssh-client ;;
	nsenter | unshare) echo util-linux ;;
	ip) echo iproute2 ;;
	nft) echo nftables ;;
	busybox) echo busybox-static ;;
	/usr/lib/cni/*) echo containernetworking-plugins ;;
	*) echo "$1" ;;
	esac
}

# lacks prints what is missing of root and commands, if anything.
lacks() {
	local need missing=()
	for need in "$@"; do
		if [[ ${need} == root ]]; then
			((EUID == 0)) || missing+=(" root")
		elif [[ -z $(PATH=${PATH}:/usr/sbin:/sbin type -P "${need}") ]]; then
			missing+=(" ${need} (Debian: $(package "${need}"))")
		fi
	done
	local IFS=,
	printf '%s' "${missing[*]}"
}

if (($# > 0)); then
	lacking=$(lacks "$@")
	[[ -z ${lacking} ]] || fail "These tests need${lacking}."
	exit
fi

skipped=0
while IFS='|' read -r tests needs; do
	read -ra needs <<<"${needs}"
	lacking=$(lacks "${needs[@]}")
	if [[ -n ${lacking} ]]; then
		echo "Skipped: ${tests}, for want of${lacking}."
		skipped=$((skipped + 1))
	fi
done <<'TABLE'
networks of hosts (test/network)|root ip nsenter
rollouts (test/e2e/rollout)|root ip nsenter
SSH (test/bastion/local, and test/e2e/api a second time)|root ip nsenter unshare sshd ssh ssh-keygen
an HTTP proxy (test/e2e/remote)|root ip nsenter tinyproxy
Konnectivity (test/e2e/konnectivity)|root ip nsenter openssl
TABLE

if ((skipped == 0)); then
	echo 'This machine can run all tests.'
elif [[ ${CI-} == true ]]; then
	echo 'With CI=true, a skipped test is a failure.'
fi
