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
	"bytes"
	"os"

	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

func newExportCRD() *cobra.Command {
	var file string
	var target kit.Target
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Writes CustomResourceDefinitions of a group's kinds",
		Long: `Writes CustomResourceDefinitions of the kinds of a group: schemas with defaults, validation and
list types, columns, field selectors, short names, categories, the subresources status and scale,
all versions, and which of them is stored. They are valid, as kube-apiserver sees it.

Parts that a definition can't express are printed on the standard error: rules in Go, columns of
several fields, Actions, Streams and Reviews.`,
		Example: "  kit export crd --file artifacts/crd.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return kit.ExportCRD(cmd.Context(), target, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			var definitions bytes.Buffer
			if err := kit.ExportCRD(cmd.Context(), target, &definitions, cmd.ErrOrStderr()); err != nil {
				return err
			}
			return os.WriteFile(file, definitions.Bytes(), 0o644) //nolint:gosec // G306: definitions are no secret.
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "File to write. (default the standard output)")
	addTarget(cmd, &target)
	return cmd
}
