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

// Package snapshot has the commands that back up the embedded etcd.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// standardStream is the name of a file that stands for the standard input or output.
const standardStream = "-"

const dataDirFlag = "data-dir"

// NewCommand returns the commands that back up the data of a server of this name. The base is
// nil if it has none.
func NewCommand(name string, base *apiserver.Base, groups ...registry.Group) *cobra.Command {
	dataDir := apiserver.DefaultDataDir(name)
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Saves, verifies and restores what the server stores",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSaveCommand(dataDir), newStatusCommand(), newVerifyCommand(name, base, groups), newRestoreCommand(name, dataDir))
	return cmd
}

func newSaveCommand(dir string) *cobra.Command {
	var (
		format   string
		keep     int
		external tool.Etcd
	)
	cmd := &cobra.Command{
		Use:   "save FILE|DIRECTORY",
		Short: "Saves the data to a file, whether or not the server is running",
		Long: "Saves all objects to a file, with a checksum. The server may keep running; if it is not, its data directory is read. With --etcd-servers, the data of that etcd is saved. " +
			"The file is as confidential as the objects in it. In a directory it is named after the time. The name - means standard output.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			save, err := saver(dir, format, &external)
			if err != nil {
				return err
			}
			saving := progress(cmd.ErrOrStderr(), "Saving")
			if args[0] == standardStream {
				return save(cmd.Context(), cmd.OutOrStdout(), saving)
			}
			file, err := destination(args[0], keep, time.Now())
			if err != nil {
				return err
			}
			snapshot, err := etcd.WriteFile(file, func(part io.Writer) error { return save(cmd.Context(), part, saving) })
			if err != nil {
				return err
			}
			if keep > 0 {
				if err := prune(args[0], keep); err != nil {
					return err
				}
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	cmd.Flags().StringVar(&dir, dataDirFlag, dir, "Directory of the server whose embedded etcd is saved.")
	cmd.Flags().IntVar(&keep, "keep", 0, "How many snapshots a directory keeps; older ones are deleted as soon as a new one is complete. 0 keeps all.")
	external.AddFlags(cmd.Flags(), "etcd-", "Addresses of an external etcd that is saved instead of the embedded one.",
		"File with the certificate authorities that are trusted for it.", "File with the certificate for it.", "File with the key of that certificate.")
	tool.AddFormat(cmd, &format)
	return cmd
}

// saver returns a function that saves the embedded etcd, or the external one if there is one.
func saver(dir, format string, external *tool.Etcd) (func(context.Context, io.Writer, etcd.Progress) error, error) {
	if len(external.Servers) > 0 {
		return func(ctx context.Context, out io.Writer, progress etcd.Progress) error {
			client, err := external.Client()
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			return etcd.SaveFrom(ctx, client, out, progress)
		}, tool.CheckFormat(format)
	}
	config, err := snapshotConfig(dir, format)
	return config.Save, err
}

func newStatusCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Verifies a file and says what is in it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tool.CheckFormat(format); err != nil {
				return err
			}
			snapshot, err := etcd.ReadFile(args[0], progress(cmd.ErrOrStderr(), "Verifying"), nil)
			if err != nil {
				return err
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	tool.AddFormat(cmd, &format)
	return cmd
}

// newVerifyCommand returns a command that restores a snapshot and reads all of its objects,
// as a fire drill.
func newVerifyCommand(name string, base *apiserver.Base, groups []registry.Group) *cobra.Command {
	var format, dir string
	options := apiserver.NewOptions(name, groups...)
	options.Base = base
	cmd := &cobra.Command{
		Use:   "verify FILE|DIRECTORY",
		Short: "Restores a file into a temporary directory, and reads every object in every version",
		Long: "Verifies a file, or the latest one in a directory: restores it into a temporary directory, starts an etcd on it, and decrypts, decodes and converts every object to every version of its group; of custom resources, which their definitions would have to convert, it compares the name and the namespace with the key. " +
			"The restored data is deleted afterwards. It needs twice the space of the data.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := tool.CheckFormat(format); err != nil {
				return err
			}
			completed, err := options.Complete()
			if err != nil {
				return err
			}
			verify, err := completed.NewStoredVerifier(cmd.Context())
			if err != nil {
				return err
			}
			file, err := latest(args[0])
			if err != nil {
				return err
			}
			snapshot, objects, err := readObjects(file, progress(cmd.ErrOrStderr(), "Verifying"), verify)
			if err == nil {
				err = try(cmd.Context(), file, dir, snapshot)
			}
			if err != nil {
				return fmt.Errorf("the snapshot %s failed the trial: %w", file, err)
			}
			if format == tool.FormatJSON {
				return tool.PrintJSON(cmd.OutOrStdout(), map[string]any{"file": file, "snapshot": snapshot, "objects": objects})
			}
			for _, resource := range slices.Sorted(maps.Keys(objects)) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d stored values can be served in every version\n", resource, objects[resource])
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s can be restored\n", file)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "temporary-dir", "", "Directory in which the file is restored temporarily. By default that of the system.")
	server := options.Flags()
	for _, section := range server.FlagSets {
		if flag := section.Lookup("encryption-provider-config"); flag != nil {
			cmd.Flags().AddFlag(flag)
		}
	}
	tool.AddFormat(cmd, &format)
	return cmd
}

func newRestoreCommand(name, dir string) *cobra.Command {
	var (
		format string
		once   once
	)
	current := dir
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Verifies a file and restores its data into a new directory",
		Long: "Verifies a file and restores its data into a new directory; start the server with that directory afterwards. It temporarily needs twice the space of the data. " +
			"Clients that watch are told to read everything again. The name - stands for the standard input.\n\n" +
			"With --revision, the data replaces what the directory has, which is kept beside it, and the same command does nothing the next time. " +
			"With --member, the directory is that of a member of a separate etcd.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := snapshotConfig(dir, format)
			if err := errors.Join(err, once.validate()); err != nil {
				return err
			}
			in, total, err := openSnapshot(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			snapshot, restored, err := once.restore(config, in, total, progress(cmd.ErrOrStderr(), "Restoring"))
			if err != nil {
				return err
			}
			if !restored {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s has been restored with the revision %d already.\n", config.Dir, once.revision)
				return nil
			}
			if once.revision == 0 {
				if err := config.Replace(cmp.Or(os.Getenv(tool.Variable(name, dataDirFlag)), current)); err != nil {
					return err
				}
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	cmd.Flags().StringVar(&dir, dataDirFlag, dir, "Directory for the data. It must be empty, or not exist, unless --revision is given.")
	once.addFlags(cmd)
	tool.AddFormat(cmd, &format)
	return cmd
}

// once has the flags of a restore that pods begin with.
type once struct {
	revision int64
	member   etcd.Member
}

func (o *once) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&o.revision, "revision", 0, "Revision at which the restored data goes on, later than any before: the number of microseconds since 1970, which is the default. All members of an etcd need the same.")
	flags.StringVar(&o.member.Name, "member", "", "Name of the member of a separate etcd that the directory is for, its --name.")
	flags.StringVar(&o.member.InitialCluster, "initial-cluster", "", "All members of that etcd with their peer URLs, as in their --initial-cluster.")
}

func (o *once) validate() error {
	switch {
	case o.revision < 0:
		return errors.New("--revision must not be negative")
	case (o.member.Name == "") != (o.member.InitialCluster == ""):
		return errors.New("--member and --initial-cluster need each other")
	case o.member.Name != "" && o.revision == 0:
		return errors.New("--member needs --revision, the same for all members: use $(date +%s%6N) once")
	}
	return nil
}

func (o *once) restore(config etcd.Config, in io.Reader, total int64, progress etcd.Progress) (etcd.Snapshot, bool, error) {
	if o.revision == 0 {
		snapshot, err := config.Restore(in, total, progress)
		return snapshot, true, err
	}
	if o.member.Name == "" {
		return config.RestoreOnce(o.revision, in, total, progress)
	}
	o.member.Dir = config.Dir
	return o.member.RestoreOnce(o.revision, in, total, progress)
}

// openSnapshot opens a file and returns its size, or 0 if that is not known.
func openSnapshot(path string, stdin io.Reader) (io.ReadCloser, int64, error) {
	if path == standardStream {
		return io.NopCloser(stdin), 0, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the snapshot: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// snapshotConfig returns the configuration of the embedded etcd in a directory.
func snapshotConfig(dir, format string) (etcd.Config, error) {
	config := etcd.Config{Dir: dir, QuotaBytes: etcd.DefaultQuotaBytes}
	if dir != "" {
		var err error
		if config.Dir, err = filepath.Abs(dir); err != nil {
			return config, fmt.Errorf("--data-dir: %w", err)
		}
	}
	return config, utilerrors.NewAggregate(append(config.Validate(), tool.CheckFormat(format)))
}

func printSnapshot(out io.Writer, format string, snapshot etcd.Snapshot) error {
	if format == tool.FormatJSON {
		return tool.PrintJSON(out, snapshot)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "Revision:\t%d\n", snapshot.Revision)
	fmt.Fprintf(table, "Keys:\t%d\n", snapshot.Keys)
	fmt.Fprintf(table, "Size:\t%s\n", mebibytes(snapshot.Size))
	fmt.Fprintf(table, "SHA-256:\t%s\n", snapshot.Hash)
	fmt.Fprintf(table, "Version:\t%s\n", cmp.Or(snapshot.Version, "unknown"))
	return table.Flush()
}

// progressInterval is how long the work may go on without a line about it.
const progressInterval = 5 * time.Second

// progress prints now and then how far something is.
func progress(out io.Writer, doing string) etcd.Progress {
	var last time.Time
	return func(done, total int64) {
		if time.Since(last) < progressInterval {
			return
		}
		last = time.Now()
		of := ""
		if total > 0 {
			of = fmt.Sprintf(" of %s (%d %%)", mebibytes(total), 100*done/total)
		}
		fmt.Fprintf(out, "%s: %s%s\n", doing, mebibytes(done), of)
	}
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
