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
	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// part is something that can be added to a kind, or to a group.
type part struct {
	name, short, long, example string
	// kind is true if the command has a flag for the kind.
	kind bool
}

func parts() []part {
	return []part{
		{
			name: "action", kind: true, short: "Adds a subresource that does something to an object",
			long: `Adds a subresource that does something to an object, atomically, such as pods/eviction: the
types of the request in each version of the kind, what it does, a test, a role, and a method of
the clients.`,
			example: "  kit create action Bake --kind Bread",
		},
		{
			name: "stream", kind: true, short: "Adds a subresource that tells about an object in lines of text",
			long: `Adds a subresource that answers with lines of plain text about an object and, if its client
asks for it, goes on whenever there is something new, as pods/log does.`,
			example: "  kit create stream Track --kind Bread",
		},
		{
			name: "review", short: "Adds a kind that is answered and never stored",
			long: `Adds a kind whose objects are answered when they are created, and never stored, as a
SubjectAccessReview.`,
			example: "  kit create review PriceReview",
		},
		{
			name: "plugin", kind: true, short: "Adds an admission plugin",
			long: `Adds an admission plugin, which runs in the server before an object is written. To begin with,
it refuses to delete an object that has an annotation.`,
			example: "  kit create plugin BreadProtection --kind Bread",
		},
		{
			name: "controller", kind: true, short: "Adds a controller",
			long: `Adds a controller that keeps the status of a kind, in one of all replicas of the server. To
begin with, it sets the condition Ready.`,
			example: "  kit create controller Baking --kind Bread",
		},
		{
			name: "webhook", short: "Adds a kind to a webhook server for custom resources",
			long: `Adds a kind to a webhook server, and the server if there is none. It converts and validates
objects of a cluster that serves the kind as a custom resource, by the code of the API server,
which needs no webhooks itself: there, write an admission plugin.`,
			example: "  kit create webhook Bread",
		},
	}
}

func newCreatePart(part part) *cobra.Command {
	options := kit.PartOptions{Type: part.name}
	var target kit.Target
	var generate bool
	cmd := &cobra.Command{
		Use:     part.name + " NAME",
		Short:   part.short,
		Long:    part.long + "\n\nIt works when it has been written. Then code is generated, unless --generate=false.",
		Example: part.example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Name = kit.Name(args[0])
			result, err := kit.CreatePart(cmd.Context(), target, options)
			return generateAndFinish(cmd, result, generate, err)
		},
	}
	flags := cmd.Flags()
	switch {
	case part.kind:
		cmd.Use += " --kind KIND"
		flags.StringVar((*string)(&options.Kind), "kind", "", "The kind.")
		_ = cmd.MarkFlagRequired("kind")
	case part.name == "review":
		flags.StringSliceVar(&options.Versions, "versions", nil, "Versions that serve the review, separated by commas. (default the preferred one of the group)")
		flags.BoolVar(&options.Namespaced, "namespaced", false, "It is about a namespace, rather than the cluster.")
	case part.name == "webhook":
		cmd.Use = "webhook KIND"
	}
	addGenerate(cmd, &generate)
	addTarget(cmd, &target)
	return cmd
}
