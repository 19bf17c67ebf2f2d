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

// Package kit has the command that authors of API servers run.
package kit

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

const long = `Writes what an API server consists of besides its author's ideas, and generates its code.

In an empty directory:

  kit init --group bakery.example.com --module example.com/bakery
  go tool kit create kind Bread --namespaced --versions v1
  make run

Every command can be repeated. Files that exist are never overwritten: one that differs
from what would be written is left alone, and named.`

// NewCommand returns the command of a name: the kit, or the protoc that go-to-protobuf
// calls.
func NewCommand(name string) *cobra.Command {
	if filepath.Base(name) == codegen.Protoc {
		return newProtoc()
	}
	cmd := &cobra.Command{
		Use:               "kit",
		Short:             "Writes API servers",
		Long:              long,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	create := newParent("create", "Adds something to a module that \"kit init\" has written", newCreateGroup(), newCreateKind(), newCreateVersion())
	for _, part := range parts() {
		create.AddCommand(newCreatePart(part))
	}
	cmd.AddCommand(newInit(), create,
		newParent("import", "Adds what is defined elsewhere to a module that \"kit init\" has written", newImportCRD()),
		newParent("export", "Writes what the module declares in another form", newExportCRD()),
		newGenerate(), newUpgrade())
	return cmd
}

// newParent returns a command that only has others below it.
func newParent(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.AddCommand(commands...)
	return cmd
}

func newInit() *cobra.Command {
	var options kit.InitOptions
	cmd := &cobra.Command{
		Use:   "init --group NAME --module PATH",
		Short: "Writes a module with an API server that has no kinds yet",
		Long: `Writes a Go module with an API server for a group, which has no kinds yet: the server,
Makefile, Dockerfile, tests, manifests for a cluster (standalone and highly available, with
monitoring), and the configuration of CI and linters.`,
		Example: "  kit init --group bakery.example.com --module example.com/bakery",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := kit.Init(cmd.Context(), options)
			return finish(cmd, result, err)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Group, "group", "", "Name of the API group, below a domain of yours.")
	flags.StringVar(&options.Module, "module", "", "Path of the Go module.")
	flags.StringVar(&options.Name, "name", "", "Name of the group's Go packages and manifests. (default the first label of --group)")
	flags.StringVar(&options.Namespace, "namespace", "", "Namespace in which the manifests install the server. (default <name>-system)")
	flags.StringVar(&options.Owner, "owner", "", "Holder of the copyright, for the licence header. (default \"The <Name> API Server Authors\")")
	flags.StringVar(&options.Replace, "replace", "", "Directory of a checkout of the library to use in place of a released version.")
	addDir(cmd, &options.Dir)
	for _, name := range []string{"group", "module"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func newCreateGroup() *cobra.Command {
	var dir, name string
	cmd := &cobra.Command{
		Use:   "group NAME",
		Short: "Adds an API group",
		Long: `Adds another API group to the server, which has no kinds yet: its first kind adds it to the server
and to the manifests. From then on, the other commands are told by --group which group is meant.`,
		Example: "  kit create group pastry.example.com",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := kit.CreateGroup(cmd.Context(), dir, args[0], name)
			return finish(cmd, result, err)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "Name of the group's Go packages. (default the first label of its name)")
	addDir(cmd, &dir)
	return cmd
}

func newCreateKind() *cobra.Command {
	var options kit.KindOptions
	var target kit.Target
	var namespaced, clients, protobuf, generate bool
	var fields []string
	cmd := &cobra.Command{
		Use:   "kind NAME --versions VERSION,...",
		Short: "Adds a kind",
		Long: `Adds a kind to a group: its internal type and that of each version, its declaration, a
place for validation, tests of validation, round trips and storage, an example, and roles for
users. Its fields are those of --field, or else one to begin with, spec.description. Then it
generates code, unless --generate=false.`,
		Example: `  kit create kind Oven --versions v1
  kit create kind Pass --versions v1 --field stationName=string,required,immutable --field start=time,required
  kit create kind Bread --namespaced --versions v1alpha1,v1 --scale --short br`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Name, options.Namespaced, options.NoClients, options.NoProtobuf = kit.Name(args[0]), namespaced, !clients, !protobuf
			for _, text := range fields {
				field, err := kit.ParseField(text)
				if err != nil {
					return err
				}
				options.Fields = append(options.Fields, field)
			}
			result, err := kit.CreateKind(cmd.Context(), target, options)
			return generateAndFinish(cmd, result, generate, err)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&options.Versions, "versions", nil, "Versions that serve the kind, separated by commas.")
	flags.StringArrayVar(&fields, "field", nil, "Field of the spec, as NAME=TYPE[,required][,immutable], with the type "+kit.FieldTypes()+". Can be repeated.")
	flags.BoolVar(&namespaced, "namespaced", false, "Objects are in namespaces, rather than cluster-scoped.")
	flags.BoolVar(&options.Status, "status", false, "The kind has a status, with conditions, which users can't change.")
	flags.BoolVar(&options.Scale, "scale", false, "The kind has replicas, which \"kubectl scale\" and a HorizontalPodAutoscaler can change. Implies --status.")
	flags.StringSliceVar(&options.Short, "short", nil, "Short names for kubectl, separated by commas.")
	flags.StringVar(&options.Resource, "plural", "", "Plural name in paths. (default what follows from the name)")
	flags.BoolVar(&clients, "clients", true, "Generate Go clients, listers and informers for the kind.")
	flags.BoolVar(&protobuf, "protobuf", true, "Store objects of the group as protobuf messages, rather than JSON. The first kind decides.")
	addGenerate(cmd, &generate)
	addTarget(cmd, &target)
	_ = cmd.MarkFlagRequired("versions")
	return cmd
}

func newCreateVersion() *cobra.Command {
	var kind string
	var target kit.Target
	var generate bool
	cmd := &cobra.Command{
		Use:   "version NAME --kind KIND",
		Short: "Adds a version of a kind",
		Long: `Adds a version of a kind, with the types of the newest version that the kind has. Change
them afterwards. Conversions that can't be generated are missing functions for the compiler.`,
		Example: "  kit create version v1 --kind Bread",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := kit.CreateVersion(cmd.Context(), target, args[0], kit.Name(kind))
			return generateAndFinish(cmd, result, generate, err)
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "The kind.")
	addGenerate(cmd, &generate)
	addTarget(cmd, &target)
	_ = cmd.MarkFlagRequired("kind")
	return cmd
}

func newGenerate() *cobra.Command {
	var config codegen.Config
	var protobuf, clients bool
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Generates code from the types of all groups of a module",
		Long: `Generates what tags in the packages of a module's types ask for: registration, deep copies,
defaults, conversions, validations, protobuf messages, OpenAPI definitions, apply configurations,
clients, listers and informers. It finds groups and versions by their place,
apis/<group>/<version>, in any module, whether or not "kit init" has written it. The generators
have the version of the module's Kubernetes libraries.

At the end, it compiles what it has generated. If that fails, or a generator does, what was generated
before stays.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.NoProtobuf, config.NoClients, config.Output = !protobuf, !clients, cmd.ErrOrStderr()
			return codegen.Generate(cmd.Context(), config)
		},
	}
	cmd.Flags().StringVar(&config.Header, "header", "", "File with what generated files begin with. (default hack/boilerplate.go.txt, if it exists)")
	cmd.Flags().BoolVar(&protobuf, "protobuf", true, "Generate protobuf messages where tags ask for them.")
	cmd.Flags().BoolVar(&clients, "clients", true, "Generate clients where tags ask for them.")
	addDir(cmd, &config.Module)
	return cmd
}

// newProtoc returns a command that accepts what go-to-protobuf passes to protoc.
func newProtoc() *cobra.Command {
	var imports []string
	var out string
	cmd := &cobra.Command{
		Use:          codegen.Protoc + " -I DIRECTORY --gogo_out DIRECTORY FILE",
		Short:        "Has protoc-gen-gogo translate messages to Go",
		SilenceUsage: true,
		Args:         cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return codegen.Compile(cmd.Context(), imports, out, args[0], cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringArrayVarP(&imports, "proto_path", "I", nil, "Directory below which there are files of messages, and those that they import.")
	cmd.Flags().StringVar(&out, "gogo_out", "", "Directory below which Go files are written.")
	return cmd
}

func newUpgrade() *cobra.Command {
	var version, dir string
	var generate bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Brings a module in step with a newer version of the library",
		Long: `Brings a module that "kit init" has written in step with a newer version of the library: go.mod,
and with it the libraries of Kubernetes and the tools; and those files of "kit init" that nobody
has changed, which hack/kit.sum tells. Files that a person has changed are left alone, and named
if they would be written differently now. Then it generates code, unless --generate=false.

A module that replaces the library by a checkout gets what the checkout has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := kit.UpgradeTo(cmd.Context(), dir, version, generate, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil || done {
				return err
			}
			result, err := kit.Upgrade(cmd.Context(), dir)
			if err != nil {
				return err
			}
			// The written files help to repair code that the new version refuses.
			if generate {
				err = kit.Generate(cmd.Context(), dir, cmd.ErrOrStderr())
			}
			if err != nil {
				printFiles(cmd.OutOrStdout(), result)
			}
			return finish(cmd, result, err)
		},
	}
	cmd.Flags().StringVar(&version, "version", "latest", "Version of the library, or current for the one that go.mod has.")
	addGenerate(cmd, &generate)
	addDir(cmd, &dir)
	return cmd
}

func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "Directory of the module's go.mod.")
}

func addTarget(cmd *cobra.Command, target *kit.Target) {
	cmd.Flags().StringVar(&target.Group, "group", "", "API group, by its name or that of its Go packages. (default the only one of the module)")
	addDir(cmd, &target.Dir)
}

func addGenerate(cmd *cobra.Command, generate *bool) {
	cmd.Flags().BoolVar(generate, "generate", true, "Generate code and tidy go.mod afterwards.")
}

func generateAndFinish(cmd *cobra.Command, result *kit.Result, generate bool, err error) error {
	if err == nil && generate {
		if err := result.Generate(cmd.Context(), cmd.ErrOrStderr()); err != nil {
			return fmt.Errorf("%w\nNothing has been written. Repair this first, or pass --generate=false and repair it afterwards", err)
		}
	}
	return finish(cmd, result, err)
}

func finish(cmd *cobra.Command, result *kit.Result, err error) error {
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	printFiles(out, result)
	if len(result.Todo) > 0 {
		fmt.Fprintln(out, "\nNext:")
	}
	for _, todo := range result.Todo {
		fmt.Fprintln(out, "  "+todo)
	}
	return nil
}

func printFiles(out io.Writer, result *kit.Result) {
	if len(result.Files) == 0 {
		fmt.Fprintln(out, "Everything is there already.")
	}
	for _, file := range result.Files {
		note := ""
		if file.Change == kit.Left {
			note = " (it exists, with other content)"
		}
		fmt.Fprintf(out, "%-8s %s%s\n", file.Change, file.Path, note)
	}
}
