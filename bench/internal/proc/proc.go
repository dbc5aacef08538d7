// SPDX-License-Identifier: Apache-2.0

// Package proc reads what the kernel says of a process: CPU time and resident memory; it touches /proc only, and answers
// zeros where there is none.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU is the time that a process has spent, in user and kernel mode. 0 stands for this process.
func CPU(pid int) time.Duration {
	b, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return 0
	}
	return parseCPU(b)
}

func parseCPU(stat []byte) time.Duration {
	// The second field is the command in parentheses and may hold anything, also parentheses and blanks.
	at := bytes.LastIndexByte(stat, ')')
	if at < 0 {
		return 0
	}
	fields := strings.Fields(string(stat[at+1:]))
	const user, kernel = 11, 12 // fields 14 and 15 of the line
	if len(fields) <= kernel {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	k, _ := strconv.ParseInt(fields[kernel], 10, 64)
	return time.Duration(u+k) * tick
}

// RSS is the resident memory of a process, in bytes.
func RSS(pid int) int64 {
	b, err := os.ReadFile(path(pid, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb int64
			if _, err := fmt.Sscan(rest, &kb); err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

func path(pid int, name string) string {
	if pid == 0 {
		return "/proc/self/" + name
	}
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}
