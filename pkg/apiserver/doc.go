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

// Package apiserver makes an API server of declared API groups: options from
// flags (options.go), a config from the options (config.go), a server from the
// completed config (server.go). NewCommand puts them together; a main function
// has nothing to add but its groups.
//
// The package knows no group in particular.
package apiserver
