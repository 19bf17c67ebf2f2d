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
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// longestJump is how far a clock jumps at most, in either direction.
const longestJump = 2 * time.Hour

// The kernel lends every process a function that reads the clock, clock_gettime of vdso(7),
// which Go uses, too. In one process, this one for amd64 replaces it. It does the system
// call of that name, and adds so many seconds to the time of day (clock 0).
//
//	mov eax, 228; syscall; test eax, eax; jne end; test edi, edi; jne end
//	mov rcx, [rip+10]; add [rsi], rcx; end: ret; align 8; the seconds
var skewedClock = []byte{
	0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0e, 0x85, 0xff, 0x75, 0x0a,
	0x48, 0x8b, 0x0d, 0x0a, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
}

// clocksCanJump reports whether setClock works on this machine.
var clocksCanJump = runtime.GOOS == "linux" && runtime.GOARCH == "amd64"

// setClock lets the clock of a process, and of nobody else, differ from that of the machine.
func setClock(pid int, difference time.Duration) error {
	image, base, err := sharedCode(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	code := make([]byte, image[1]-image[0])
	if _, err := memory.ReadAt(code, base+image[0]); err != nil {
		return err
	}
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(difference/time.Second))
	address := base + image[0]
	if bytes.HasPrefix(code, skewedClock) {
		_, err = memory.WriteAt(seconds, address+int64(len(skewedClock)))
		return err
	}
	replacement := slices.Concat(skewedClock, seconds)
	if len(code) < len(replacement) {
		return fmt.Errorf("clock_gettime has only %d bytes", len(code))
	}
	// Nobody may be in the middle of it.
	for {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		inside, err := runsIn(pid, address, address+int64(len(code)))
		if err == nil && !inside {
			_, err = memory.WriteAt(replacement, address)
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil || !inside {
			return err
		}
	}
}

// sharedCode returns where clock_gettime begins and ends in what the kernel has lent a
// process, and where that is.
func sharedCode(pid int) (function [2]int64, base int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return function, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
			return function, 0, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return function, 0, err
		}
		defer memory.Close()
		image := make([]byte, end-base)
		if _, err := memory.ReadAt(image, base); err != nil {
			return function, 0, err
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return function, 0, err
		}
		symbols, err := file.DynamicSymbols()
		for _, symbol := range symbols {
			if symbol.Name == "__vdso_clock_gettime" {
				return [2]int64{int64(symbol.Value), int64(symbol.Value + symbol.Size)}, base, nil
			}
		}
		return function, 0, errors.Join(errors.New("vdso has no clock_gettime"), err)
	}
	return function, 0, errors.New("the process has no vdso")
}

// runsIn waits until a process that is told to stop has stopped, and reports whether one of
// its threads did so between two addresses.
func runsIn(pid int, begin, end int64) (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		state := "running"
		for state == "running" {
			content, err := os.ReadFile(task)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				break
			}
			if err != nil {
				return false, err
			}
			state = strings.TrimSpace(string(content))
		}
		fields := strings.Fields(state)
		at, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
		if err == nil && begin <= at && at < end {
			return true, nil
		}
	}
	return false, nil
}

// clockFault lets the clock of a process jump, and after a while jump back.
func (c *campaign) clockFault(component *controlplane.Component) []fault {
	if !clocksCanJump {
		return nil
	}
	return []fault{{"let the clock of " + component.Name() + " jump", func() {
		require.NoError(c, setClock(component.PID(), time.Duration(c.random.Int64N(int64(2*longestJump)))-longestJump))
		c.sleep(longestFault)
		require.NoError(c, setClock(component.PID(), 0))
	}}}
}

// A clock that only seems to jump proves nothing.
func TestClock(t *testing.T) {
	const printing = "FAULTS_PRINT_CLOCK"
	if os.Getenv(printing) != "" {
		for {
			began := time.Now()
			time.Sleep(10 * time.Millisecond)
			fmt.Println(time.Now().Unix(), time.Since(began) < time.Minute)
		}
	}
	if !clocksCanJump {
		t.Skip("Clocks of other processes can be set on amd64 only.")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestClock$")
	cmd.Env = append(os.Environ(), printing+"=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(output)
	for _, difference := range []time.Duration{0, time.Hour, -longestJump, 0} {
		if difference != 0 || lines.Text() != "" {
			require.NoError(t, setClock(cmd.Process.Pid, difference))
		}
		// Lines that were printed before are still to be read.
		controlplane.Eventually(t, func() error {
			require.True(t, lines.Scan())
			var seconds int64
			var monotonic bool
			if _, err := fmt.Sscan(lines.Text(), &seconds, &monotonic); err != nil {
				return err
			}
			require.True(t, monotonic)
			if got := time.Until(time.Unix(seconds, 0)); (got - difference).Abs() > time.Minute {
				return fmt.Errorf("the clock differs by %s in place of %s", got, difference)
			}
			return nil
		})
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}
