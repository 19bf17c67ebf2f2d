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

# The first process of a node, in the directory that has its files. The rest of the file
# system is this machine's.

set -o errexit -o nounset

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
# Settings of the whole machine can't be changed from here. The kubelet insists on these: it
# gets files.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw /proc/sys/net
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	file=/run/sysctl/${setting}
	mkdir -p "${file%/*}"
	cat "/proc/sys/${setting}" >"${file}"
	mount --bind "${file}" "/proc/sys/${setting}"
done

mkdir -p lib log
mount --bind lib /var/lib
mount --bind log /var/log

trap exit TERM
touch ready
# A process that loses its parent becomes a child of this one, which bash waits for, too.
sleep infinity &
wait
