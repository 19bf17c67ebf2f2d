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

package controlplane

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a started child process, or a function of this process.
type process struct {
	pid int
	// cancel ends the function.
	cancel context.CancelFunc
	// done is closed when the process has ended, and err is then its error.
	done chan struct{}
	err  error
}

// startProcess starts a child in its own process group. A Ctrl-C in the terminal then
// reaches only the parent, which ends its children in order. The child inherits lock,
// which tells later runs that it is still there.
func startProcess(cmd *exec.Cmd, lock *os.File) (*process, error) {
	cmd.SysProcAttr = childAttributes()
	cmd.SysProcAttr.Setpgid = true
	cmd.ExtraFiles = []*os.File{lock}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux ends the child when the thread that started it ends, not the process.
		// Therefore the thread is kept until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// startFunction starts a function of this process like a process.
func startFunction(run func(context.Context, []string) error, args []string) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{pid: os.Getpid(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer cancel()
		p.err = run(ctx, args)
	}()
	return p
}

// ended reports whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process, by force after patience, and returns when it is gone. It reports
// whether it used force.
func (p *process) stop(patience time.Duration) (killed bool) {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return false
	case <-time.After(patience):
		p.kill()
		return true
	}
}

// kill ends the process by force and returns when it is gone. It can't end a function,
// which keeps running if it ignores its context.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	if p.cancel == nil {
		<-p.done
	}
}

// signal sends a signal to the whole process group. A missing group is no error, since
// the process may end at any moment.
func (p *process) signal(signal syscall.Signal) {
	switch {
	case p.ended():
	case p.cancel != nil:
		p.cancel()
	default:
		_ = syscall.Kill(-p.pid, signal)
	}
}
