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

package cmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		env, args []string
		dir       string
		servers   []string
		err       string
	}{
		"nothing":                     {nil, nil, "/default", []string{"default"}, ""},
		"variables":                   {[]string{"A_SERVER_DATA_DIR=/env", "A_SERVER_ETCD_SERVERS=a,b"}, nil, "/env", []string{"a", "b"}, ""},
		"the command line goes first": {[]string{"A_SERVER_DATA_DIR=/env"}, []string{"--data-dir=/line"}, "/line", []string{"default"}, ""},
		"an empty value":              {[]string{"A_SERVER_DATA_DIR="}, nil, "", []string{"default"}, ""},
		"those of another server":     {[]string{"SERVER_DATA_DIR=/env", "DATA_DIR=/env"}, nil, "/default", []string{"default"}, ""},
		"no number":                   {[]string{"A_SERVER_PORT=tcp://10.0.0.1:443"}, nil, "/default", []string{"default"}, `the environment variable A_SERVER_PORT can't be used: invalid argument "tcp://10.0.0.1:443" for "--port" flag: strconv.ParseInt: parsing "tcp://10.0.0.1:443": invalid syntax`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range test.env {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			var (
				dir     string
				servers []string
			)
			below := &cobra.Command{Use: "below", RunE: func(*cobra.Command, []string) error { return nil }, SilenceUsage: true, SilenceErrors: true}
			below.Flags().StringVar(&dir, "data-dir", "/default", "")
			below.Flags().StringSliceVar(&servers, "etcd-servers", []string{"default"}, "")
			below.Flags().Int("port", 1, "")
			root := &cobra.Command{Use: "a-server"}
			root.AddCommand(below)
			WithEnvironment("a-server", root)
			root.SetArgs(append([]string{"below"}, test.args...))
			err := root.Execute()
			if got := fmt.Sprint(err); err != nil && got != test.err || err == nil && test.err != "" {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			if dir != test.dir {
				t.Errorf("got %q, want %q", dir, test.dir)
			}
			if diff := cmp.Diff(test.servers, servers); diff != "" {
				t.Error(diff)
			}
		})
	}
}
