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

package webhook

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// secretPath is a path that can't be guessed, and that kube-apiserver accepts.
var secretPath = regexp.MustCompile(`^[a-z0-9]{16,}$`)

func readPath(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the file of --path-file: %w", err)
	}
	path := strings.TrimSpace(string(content))
	if !secretPath.MatchString(path) {
		return "", fmt.Errorf("the file of --path-file, %s, must have one path of at least 16 small letters and digits", file)
	}
	return path, nil
}

// belowPath answers with 404 unless the request is for a path below the one in the file. Without a file, every
// request is passed on. It exempts the IP addresses of clients that know the path from the bound of connections, since
// each review takes a connection of its own.
func belowPath(pathFile string, next http.Handler) http.Handler {
	if pathFile == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path, err := readPath(pathFile)
		if err != nil {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
			return
		}
		http.StripPrefix("/"+path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			transport.Trust(req)
			next.ServeHTTP(w, req)
		})).ServeHTTP(w, req)
	})
}
