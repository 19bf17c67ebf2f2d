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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/term"

	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// standardStream is the name of a file that stands for the standard input or output.
const standardStream = "-"

// NewCommand returns the commands that back up the embedded etcd of a server whose data
// directory is this one unless told otherwise.
func NewCommand(dataDir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Saves and restores the data of the embedded etcd",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSaveCommand(dataDir), newStatusCommand(), newRestoreCommand(dataDir))
	return cmd
}

func newSaveCommand(dir string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Saves the data to a file, whether or not the server is running",
		Long: "Saves all objects to a file, with a checksum. The server may keep running; if it is not, its data directory is read. " +
			"The file is as confidential as the objects in it. The name - means standard output.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := snapshotConfig(dir, format)
			if err != nil {
				return err
			}
			progress := newProgress(cmd.ErrOrStderr(), "Saving")
			if args[0] == standardStream {
				defer progress.end()
				return config.Save(cmd.Context(), cmd.OutOrStdout(), progress.tell)
			}
			snapshot, err := config.SaveFile(cmd.Context(), args[0], progress.tell)
			progress.end()
			if err != nil {
				return err
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	addDataDir(cmd, &dir, "Directory of the server whose embedded etcd is saved.")
	tool.AddFormat(cmd, &format)
	return cmd
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
			progress := newProgress(cmd.ErrOrStderr(), "Verifying")
			snapshot, err := etcd.ReadFile(args[0], progress.tell)
			progress.end()
			if err != nil {
				return err
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	tool.AddFormat(cmd, &format)
	return cmd
}

func newRestoreCommand(dir string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Verifies a file and restores its data into a new directory",
		Long: "Verifies a file and restores its data into a new directory; start the server with that directory afterwards. It temporarily needs twice the space of the data. " +
			"Clients that watch are told to read everything again. The name - stands for the standard input.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := snapshotConfig(dir, format)
			if err != nil {
				return err
			}
			in, total, err := openSnapshot(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			progress := newProgress(cmd.ErrOrStderr(), "Restoring")
			snapshot, err := config.Restore(in, total, progress.tell)
			progress.end()
			if err != nil {
				return err
			}
			return printSnapshot(cmd.OutOrStdout(), format, snapshot)
		},
	}
	addDataDir(cmd, &dir, "Directory for the data. It must be empty, or not exist.")
	tool.AddFormat(cmd, &format)
	return cmd
}

// openSnapshot returns what is in a file and how much that is, if it is known.
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

func addDataDir(cmd *cobra.Command, dir *string, usage string) {
	cmd.Flags().StringVar(dir, "data-dir", *dir, usage)
}

// snapshotConfig is the embedded etcd's of the server that is given the directory.
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

// progress says how far something is: on a terminal in a line that changes,
// elsewhere in a new line now and then.
type progress struct {
	out         io.Writer
	terminal    bool
	interval    time.Duration
	doing       string
	done, total int64
	told        time.Time
	// printed is what was done when it was printed last.
	printed int64
}

func newProgress(out io.Writer, doing string) *progress {
	if _, _, err := term.TerminalSize(out); err != nil {
		return &progress{out: out, doing: doing, interval: 5 * time.Second}
	}
	return &progress{out: out, doing: doing, interval: 100 * time.Millisecond, terminal: true}
}

// tell is an etcd.Progress.
func (p *progress) tell(done, total int64) {
	p.done, p.total = done, total
	if time.Since(p.told) >= p.interval {
		p.told = time.Now()
		p.print()
	}
}

func (p *progress) print() {
	p.printed = p.done
	start, end := "", "\n"
	if p.terminal {
		start, end = "\r", "\x1b[K" // The rest of an earlier, longer line.
	}
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf(" of %s (%d %%)", mebibytes(p.total), 100*p.done/p.total)
	}
	fmt.Fprint(p.out, start, p.doing, ": ", mebibytes(p.done), of, end)
}

// end says how far it has come.
func (p *progress) end() {
	if p.told.IsZero() {
		return
	}
	if p.printed != p.done {
		p.print()
	}
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
