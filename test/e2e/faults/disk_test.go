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

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// diskSize is enough for the logs that an etcd allocates, for what the embedded one keeps
// free, and for two copies of a small database.
const diskSize = 1 << 30

// Constants of <linux/fs.h> and ext4 that the library does not have.
const (
	freezeDisk   = 0xc0045877
	thawDisk     = 0xc0045878
	shutDownDisk = 0x8004587d
	// withoutLog drops the journal, too.
	withoutLog = 2
)

// TestMain gives the tests the mounts of their own that disks need. They are gone with the
// last process, however that ends.
func TestMain(m *testing.M) {
	if path := os.Getenv(writtenFile); path != "" {
		writeAndSync(path)
	}
	const inside = "FAULTS_MOUNTS"
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // The child needs this thread, see controlplane.startProcess.
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=own")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		panic(err)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// disk is a file system of its own, on a file.
type disk struct {
	t     *testing.T
	dir   string
	image string
}

// newDisk mounts a disk at a directory that does not exist.
func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	d := &disk{t, dir, filepath.Join(t.TempDir(), "disk")}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, diskSize))
	// Without space that only root may use, and without any work in the background.
	d.command("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	d.mount()
	t.Cleanup(func() {
		_ = d.control(thawDisk, 0) // Of one that is not frozen, an error.
		require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return d
}

func (d *disk) command(name string, args ...string) {
	d.t.Helper()
	cmd := exec.Command(name, args...)
	if cmd.Err != nil {
		cmd = exec.Command("/usr/sbin/"+name, args...)
	}
	output, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "%s: %s", name, output)
}

func (d *disk) mount() {
	d.t.Helper()
	d.command("mount", "-o", "loop", d.image, d.dir)
}

func (d *disk) control(request uint, argument uint32) error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), uintptr(request), uintptr(unsafe.Pointer(&argument))); errno != 0 {
		return errno
	}
	return nil
}

// hang lets everything that is written wait while something is done.
func (d *disk) hang(during func()) {
	require.NoError(d.t, d.control(freezeDisk, 0))
	defer func() { require.NoError(d.t, d.control(thawDisk, 0)) }()
	during()
}

// fill leaves so much space on the disk, until it is called to free what it took.
func (d *disk) fill(leave int64) (free func()) {
	var stat unix.Statfs_t
	require.NoError(d.t, unix.Statfs(d.dir, &stat))
	file, err := os.Create(filepath.Join(d.dir, "filler"))
	require.NoError(d.t, err)
	defer file.Close()
	err = unix.Fallocate(int(file.Fd()), 0, 0, max(1, int64(stat.Bavail)*stat.Bsize-leave))
	if !errors.Is(err, unix.ENOSPC) { // Some of it is needed for the file itself.
		require.NoError(d.t, err)
	}
	return func() { require.NoError(d.t, os.Remove(file.Name())) }
}

// fail lets the disk lose what has not been synced, and refuse everything from now on. ext4 may lose data that
// is being synced in that moment, and say that it was, which no disk does. So it happens while the processes
// that use the disk do nothing.
func (d *disk) fail(pids ...int) {
	for _, pid := range pids {
		suspend(d.t, pid)
	}
	require.NoError(d.t, d.control(shutDownDisk, withoutLog))
	for _, pid := range pids {
		require.NoError(d.t, syscall.Kill(pid, syscall.SIGCONT))
	}
}

// suspend stops a process, and waits until none of its threads is in a system call.
func suspend(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	controlplane.Eventually(t, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// Its name, which is before that, may contain anything.
			if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
				return fmt.Errorf("%s says %c", thread, state)
			}
		}
		return nil
	})
}

// repair brings a disk that has failed back, as it was. Nobody may use it.
func (d *disk) repair() {
	controlplane.Eventually(d.t, func() error { return unix.Unmount(d.dir, 0) })
	d.mount()
}

// faultsOf are what can go wrong with the disk of a component, which ends of itself if it
// can't go on.
func (d *disk) faultsOf(c *campaign, component *controlplane.Component) []fault {
	name := " the disk of " + component.Name()
	endAndStart := func() {
		component.Kill()
		d.repair()
		require.NoError(c, component.Start(c.Context()))
	}
	return []fault{
		{"hang" + name, func() { d.hang(func() { c.sleep(longestFault) }) }},
		{"slow down" + name, func() {
			for end := time.Now().Add(time.Duration(c.random.Int64N(int64(longestFault)))); time.Now().Before(end); {
				d.hang(func() { time.Sleep(slowness) })
				time.Sleep(slowness / 10)
			}
		}},
		{"fill" + name, func() {
			free := d.fill(0)
			c.sleep(longestFault)
			free()
			if component.PID() == 0 {
				require.NoError(c, component.Start(c.Context()))
			}
		}},
		{"cut the power of" + name, func() {
			d.fail(component.PID())
			endAndStart()
		}},
		{"break" + name, func() {
			d.fail(component.PID())
			c.sleep(longestFault)
			endAndStart()
		}},
	}
}

// A disk that only seems to break proves nothing.
func TestDisk(t *testing.T) {
	framework.Long(t, "a disk is broken again and again")
	if os.Geteuid() != 0 {
		t.Skip("Only root may mount disks.")
	}
	d := newDisk(t, filepath.Join(t.TempDir(), "mounted"))
	write := func(name string, sync bool) error {
		file, err := os.Create(filepath.Join(d.dir, name))
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.WriteString(name); err != nil || !sync {
			return err
		}
		return file.Sync()
	}
	done := make(chan error, 1)
	d.hang(func() {
		go func() { done <- write("late", true) }()
		select {
		case err := <-done:
			assert.Fail(t, "Something was written to a disk that hangs.", "%v", err)
			done <- nil
		case <-time.After(time.Second):
		}
	})
	require.NoError(t, <-done)
	free := d.fill(0)
	large := strings.Repeat("x", 1<<20)
	require.ErrorIs(t, os.WriteFile(filepath.Join(d.dir, "large"), []byte(large), 0o600), unix.ENOSPC)
	free()
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "large"), []byte(large), 0o600))

	require.NoError(t, write("synced", true))
	require.NoError(t, write("lost", false))
	d.fail()
	require.ErrorIs(t, os.WriteFile(filepath.Join(d.dir, "large"), nil, 0o600), unix.EIO)
	d.repair()
	content, err := os.ReadFile(filepath.Join(d.dir, "synced"))
	require.NoError(t, err)
	require.Equal(t, "synced", string(content))
	content, err = os.ReadFile(filepath.Join(d.dir, "lost"))
	require.True(t, err != nil || len(content) == 0, "It was not synced, and is not lost.")
}

// writtenFile is the variable of the environment of a process that writes.
const writtenFile = "FAULTS_WRITE"

// writeAndSync writes numbers into a file, as etcd does into its log, and says which of them are safe.
func writeAndSync(path string) {
	file, err := os.Create(path)
	if err == nil {
		err = unix.Fallocate(int(file.Fd()), 0, 0, 1<<20)
	}
	block := make([]byte, unix.Getpagesize())
	for n := byte(1); err == nil; n++ {
		block[0] = n
		if _, err = file.WriteAt(block, int64(n)*int64(len(block))); err == nil {
			if err = unix.Fdatasync(int(file.Fd())); err == nil {
				_, err = os.Stdout.Write(block[:1])
			}
		}
	}
	os.Exit(1)
}

// A disk that loses what it said was synced blames etcd for it.
func TestDiskKeepsWhatWasSynced(t *testing.T) {
	framework.Long(t, "a disk is broken again and again")
	if os.Geteuid() != 0 {
		t.Skip("Only root may mount disks.")
	}
	random := rand.New(rand.NewPCG(1, 1))
	d := newDisk(t, filepath.Join(t.TempDir(), "mounted"))
	for range 30 {
		path := filepath.Join(d.dir, "log")
		writer := exec.CommandContext(t.Context(), "/proc/self/exe")
		writer.Env = append(os.Environ(), writtenFile+"="+path)
		stdout, err := writer.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		// A process may take longer to start than any time that is waited here.
		first := make([]byte, 1)
		_, err = io.ReadFull(stdout, first)
		require.NoError(t, err, "Nothing was ever synced.")
		time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
		d.fail(writer.Process.Pid)
		rest, err := io.ReadAll(stdout)
		require.NoError(t, err)
		require.Error(t, writer.Wait())
		d.repair()
		said := slices.Concat(first, rest)
		last := said[len(said)-1]
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, last, content[int(last)*unix.Getpagesize()], "The last of %d blocks that were synced is lost.", len(said))
	}
}
