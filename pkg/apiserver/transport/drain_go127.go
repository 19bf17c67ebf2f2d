//go:build go1.27 && !http2legacy

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

package transport

// This file fails to compile on purpose. From Go 1.27 on, net/http serves HTTP/2 itself once the
// library has called http2.ConfigureServer of golang.org/x/net. It then ignores TLSNextProto
// (conn.serve in net/http/server.go), and so the function that takeHTTP2 in package transport sets.
// Connections get the GOAWAY that drops requests, and their frames are not paced.
// TestARequestAfterGoAway fails then.
//
// Make takeHTTP2 work with Go 1.27 until that test passes, and remove this file. Until then, build
// with the tag http2legacy, which keeps the server that Go 1.26 has.
var _ = readDrainGo127
