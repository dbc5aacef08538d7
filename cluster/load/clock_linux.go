// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a sleeper on a timer of the kernel. The runtime's own timers wake an idle process up to a millisecond late, which
// would show as latency of whatever is measured.
type alarm struct {
	fd   int
	file *os.File
	stop func() bool
	buf  [8]byte
}

func newSleeper(ctx context.Context) sleeper {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newTimer(ctx) // out of descriptors: less precise, and still right
	}
	a := &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
	a.stop = context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	return a
}

func (a *alarm) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if unix.TimerfdSettime(a.fd, 0, &spec, nil) != nil {
		return
	}
	_, _ = a.file.Read(a.buf[:]) // fails when ctx has ended, which the caller looks at
}

func (a *alarm) close() {
	a.stop()
	_ = a.file.Close()
}
