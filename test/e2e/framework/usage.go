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

package framework

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"k8s.io/client-go/rest"
)

// Used is the usage of a server after a garbage collection.
type Used struct {
	HeapBytes, Goroutines int64
}

// Usage makes a server collect garbage, and returns its usage.
func Usage(config *rest.Config) (used Used, err error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return used, err
	}
	defer client.CloseIdleConnections()
	if _, err := fetch(client, config.Host+"/debug/pprof/heap?gc=1"); err != nil {
		return used, err
	}
	metrics, err := fetch(client, config.Host+"/metrics")
	if err != nil {
		return used, err
	}
	for name, value := range map[string]*int64{"go_memstats_heap_inuse_bytes": &used.HeapBytes, "go_goroutines": &used.Goroutines} {
		match := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(metrics)
		if match == nil {
			return used, fmt.Errorf("the server has no metric %s", name)
		}
		number, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			return used, err
		}
		*value = int64(number)
	}
	return used, nil
}

func fetch(client *http.Client, url string) ([]byte, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("GET %s answers %s", url, response.Status), err)
	}
	return body, err
}
