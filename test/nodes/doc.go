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

// Package nodes makes a cluster with real nodes on this machine, for tests of an operator's work.
// Each node has containerd, runc, the kubelet and kube-proxy. Pods run from images, and have
// volumes, probes, DNS and Services.
//
//	  kube-apiserver, etcd, controllers, scheduler, CoreDNS
//	                       │
//	   ┌───────────────────┼───────────────────┐
//	node-0 ───────────── node-1 ───────────── node-2
//
// Each node is a network, mount and PID namespace. It has its own /var/lib, /var/log and /run,
// below the directory of the test. When its first process ends, so do all others. Only cables of
// package network connect the hosts. Nothing is left when the test has ended.
//
// The package needs root, Linux, and the Debian packages containerd, runc,
// containernetworking-plugins, iproute2, iptables, nftables and conntrack. It has been run with
// cgroups of version 1 only.
package nodes
