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

# Runs a command with an etcd API that stores in PostgreSQL: kine, which "make nightly SUITE=kine" builds.
# Both are new, only for this command, and reachable from this machine only.
#
#   hack/with-kine.sh COMMAND [ARGUMENT...]
#
# The command finds it in E2E_ETCD_SERVERS.

source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort --version-sort | tail -n 1)
readonly programs
[[ -n ${programs} ]] || fail 'PostgreSQL is missing: apt-get install postgresql.'

# PostgreSQL refuses to run as root.
as=()
if ((EUID == 0)); then
	as=(runuser --user=postgres --)
fi
readonly as

dir=$(mktemp --directory)
readonly dir
kine=
clean() {
	[[ -z ${kine} ]] || kill "${kine}" 2>/dev/null || true
	"${as[@]}" "${programs}/pg_ctl" --pgdata="${dir}/data" --mode=immediate --silent stop || true
	rm --recursive --force "${dir}"
}
trap clean EXIT

if ((EUID == 0)); then
	chown postgres "${dir}"
fi
"${as[@]}" "${programs}/initdb" --pgdata="${dir}/data" --username=kine --auth=trust >/dev/null
"${as[@]}" "${programs}/pg_ctl" --pgdata="${dir}/data" --log="${dir}/log" --wait --silent \
	--options="-c listen_addresses='' -c unix_socket_directories='${dir}' -c max_connections=200" start
chmod go+rx "${dir}"

_output/bin/kine --endpoint="postgres://kine@localhost/kine?host=${dir}&sslmode=disable" \
	--listen-address="unix://${dir}/kine.sock" --metrics-bind-address=0 >"${dir}/kine.log" 2>&1 &
kine=$!
for ((attempt = 1; ; attempt++)); do
	if [[ -S ${dir}/kine.sock ]]; then
		break
	fi
	if ((attempt == 300)) || ! kill -0 "${kine}" 2>/dev/null; then
		cat "${dir}/kine.log" >&2
		fail 'kine does not serve; its log is above.'
	fi
	sleep 0.2
done

status=0
E2E_ETCD_SERVERS="unix://${dir}/kine.sock" "$@" || status=$?
if ((status != 0)); then
	tail -n 50 "${dir}/kine.log" >&2
	exit "${status}"
fi
