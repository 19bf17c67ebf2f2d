/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package nodes makes a cluster with real nodes on this machine, for tests of what an
// operator does: containerd, runc, the kubelet and kube-proxy of three nodes run pods from
// images, which have volumes, probes, DNS and Services.
//
//	  kube-apiserver, etcd, controllers, scheduler, CoreDNS
//	                       │
//	   ┌───────────────────┼───────────────────┐
//	node-0 ───────────── node-1 ───────────── node-2
//
// Each node is a network, mount and PID namespace: what it writes to /var/lib, /var/log and
// /run is its own, below the directory of the test, and when its first process ends, so does
// everything on it. The hosts are connected by cables of package network and by nothing
// else. Nothing is left when the test has ended.
//
// It needs root, Linux, and the Debian packages containerd, runc, containernetworking-plugins,
// iptables, nftables and conntrack. It has been run with cgroups of version 1 only.
package nodes
