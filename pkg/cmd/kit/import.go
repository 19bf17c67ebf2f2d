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

package kit

import (
	"fmt"

	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

func newImportCRD() *cobra.Command {
	var options kit.ImportOptions
	var dir string
	var clients, generate bool
	cmd := &cobra.Command{
		Use:   "crd FILE...",
		Short: "Adds the kinds that CustomResourceDefinitions define",
		Long: `Adds the kinds that CustomResourceDefinitions define, each to its group, which the module must
have: types, columns, field selectors, short names, categories, the subresources status and scale, and roles for users.
The internal types are those of the preferred version.

The definition is kept in pkg/registry/<group>/<kind>.yaml, and decides what objects may be: what is dropped, what is
filled in and what is refused. Remaining differences are printed on the standard error, before anything is
written.`,
		Example: "  kit init --group example.com --module example.com/server\n  kit import crd config/crd/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Files, options.NoClients = args, !clients
			options.Report = func(finding string) { fmt.Fprintln(cmd.ErrOrStderr(), "differs from the definition: "+finding) }
			result, err := kit.ImportCRD(cmd.Context(), dir, options)
			return generateAndFinish(cmd, result, generate, err)
		},
	}
	cmd.Flags().StringSliceVar(&options.Versions, "versions", nil, "Versions to import, separated by commas. (default all that are served)")
	cmd.Flags().BoolVar(&clients, "clients", true, "Generate Go clients, listers and informers for the kinds.")
	addGenerate(cmd, &generate)
	addDir(cmd, &dir)
	return cmd
}
